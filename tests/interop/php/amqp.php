<?php
// SPDX-License-Identifier: Apache-2.0
// php amqp.php TOLD: scenarios with the extension amqp, which is rabbitmq-c behind PHP's objects.

declare(strict_types=1);

require __DIR__ . '/scenarios.php';

final class Amqp extends Scenarios
{
    private AMQPConnection $connection;
    private AMQPChannel $channel;
    private AMQPExchange $default;

    public function begin(string $scenario): void
    {
        parent::begin($scenario);
        $this->connection = new AMQPConnection($this->place('shared'));
        $this->connection->connect();
        $this->channel = new AMQPChannel($this->connection);
        $this->default = new AMQPExchange($this->channel);
    }

    public function end(): void
    {
        $this->connection->disconnect();
    }

    /** @return array<string, mixed> */
    private function place(string $which, array $more = []): array
    {
        $place = ['host' => $this->told[$which]['host'], 'port' => $this->told[$which]['port']];
        return $more + $place + ['rpc_timeout' => PATIENCE_S, 'read_timeout' => PATIENCE_S];
    }

    private function queue(string $name, array $arguments = [], ?AMQPChannel $channel = null): AMQPQueue
    {
        $queue = new AMQPQueue($channel ?? $this->channel);
        $queue->setName($name);
        $queue->setFlags(AMQP_EXCLUSIVE);
        $queue->setArguments($arguments);
        $queue->declareQueue();
        return $queue;
    }

    private function exchange(string $name, string $type, array $arguments = []): AMQPExchange
    {
        $exchange = new AMQPExchange($this->channel);
        $exchange->setName($name);
        $exchange->setType($type);
        $exchange->setArguments($arguments);
        $exchange->setFlags(AMQP_AUTODELETE);
        $exchange->declareExchange();
        return $exchange;
    }

    private function publish(string $queue, string ...$bodies): void
    {
        foreach ($bodies as $body) {
            $this->default->publish($body, $queue);
        }
    }

    private function take(AMQPQueue $queue): AMQPEnvelope
    {
        return $this->until(fn() => $queue->get(AMQP_AUTOACK));
    }

    /** @return list<string> */
    private function drained(AMQPQueue $queue): array
    {
        for ($found = []; $got = $queue->get(AMQP_AUTOACK);) {
            $found[] = $got->getBody();
        }
        return $found;
    }

    /** What a consumer gets first. @return list<AMQPEnvelope> */
    private function consumed(AMQPQueue $queue, int $count, int $flags = AMQP_AUTOACK): array
    {
        $found = [];
        $queue->consume(function (AMQPEnvelope $got) use (&$found, $count): bool {
            $found[] = $got;
            return count($found) < $count;
        }, $flags);
        return $found;
    }

    private function refused(string $class, int $code, string $words, callable $act): void
    {
        $channel = new AMQPChannel($this->connection);
        $thrown = $this->thrown($class, fn() => $act($channel));
        $this->check(str_contains($thrown->getMessage(), $words), $thrown->getMessage());
        $this->equal($thrown->getCode(), $code);
        $this->equal($channel->isConnected(), false);
        $this->equal($this->connection->isConnected(), true);
    }

    // --- Messages -----------------------------------------------------------------------------------

    public function everyPropertyAndTypeOfValue(): void
    {
        $queue = $this->queue($this->name);
        $headers = [
            'text' => 'täxt', 'int' => 7, 'long' => PHP_INT_MIN, 'double' => -2.5, 'yes' => true, 'none' => null,
            'list' => ['one', ['two' => 2]], 'table' => ['in' => ['deep' => 'x']], 'octets' => "\xff\0",
            'date' => new AMQPTimestamp(1700000000), 'decimal' => new AMQPDecimal(2, 12345),
        ];
        $sent = [
            'content_type' => 'text/plain', 'content_encoding' => 'utf-8', 'delivery_mode' => 2, 'priority' => 7,
            'correlation_id' => 'c', 'reply_to' => 'r', 'expiration' => '60000', 'message_id' => 'm',
            'timestamp' => 1700000000, 'type' => 't', 'user_id' => 'guest', 'app_id' => 'a',
        ];
        $this->default->publish('body', $this->name, AMQP_NOPARAM, $sent + ['headers' => $headers]);
        $got = $this->take($queue);
        $this->equal($got->getBody(), 'body');
        $this->equal($got->getRoutingKey(), $this->name);
        $this->equal($got->isRedelivery(), false);
        foreach ($sent as $property => $value) {
            $getter = 'get' . str_replace('_', '', ucwords($property, '_'));
            $this->equal($got->$getter(), $value);
        }
        $found = $got->getHeaders();
        $this->equal((int) $found['date']->getTimestamp(), 1700000000); // A text, or from 2.0 on a float.
        $this->equal([$found['decimal']->getExponent(), $found['decimal']->getSignificand()], [2, 12345]);
        unset($found['date'], $found['decimal'], $headers['date'], $headers['decimal']);
        ksort($found);
        ksort($headers);
        $this->equal($found, $headers);
        $this->default->publish('', $this->name);
        $this->equal((string) $this->take($queue)->getBody(), '');
        $this->equal((bool) $queue->get(), false);
    }

    public function bigMessagesInSmallFrames(): void
    {
        $small = new AMQPConnection($this->place('shared', ['frame_max' => 4096, 'channel_max' => 5]));
        $small->connect();
        $this->equal([$small->getMaxFrameSize(), $small->getMaxChannels()], [4096, 5]);
        $channel = new AMQPChannel($small);
        $queue = $this->queue($this->name, [], $channel);
        foreach ([4087, 4088, 4089, 1000003] as $size) {
            $body = random_bytes($size);
            (new AMQPExchange($channel))->publish($body, $this->name);
            $this->check($this->take($queue)->getBody() === $body, "a body of $size octets");
            $this->publish($this->name, $body);
            $this->check($this->take($queue)->getBody() === $body, "a body of $size octets");
        }
        $small->disconnect();
    }

    // --- Publishers ---------------------------------------------------------------------------------

    public function confirmsNacksAndReturns(): void
    {
        $this->queue($this->name, ['x-max-length' => 3, 'x-overflow' => 'reject-publish']);
        $this->channel->confirmSelect();
        $said = [];
        $this->channel->setConfirmCallback(
            function (int $tag, bool $multiple) use (&$said): bool {
                $said['acked'] = $tag;
                return $tag < 3;
            },
            function (int $tag, bool $multiple, bool $requeue) use (&$said): bool {
                $said['nacked'] = $tag;
                return false;
            },
        );
        $this->channel->setReturnCallback(function (...$about) use (&$said): bool {
            $said['returned'] = array_slice($about, 0, 4);
            return false;
        });
        $this->publish($this->name, '1', '2', '3');
        $this->channel->waitForConfirm(PATIENCE_S);
        $this->publish($this->name, '4');
        $this->channel->waitForConfirm(PATIENCE_S);
        $this->default->publish('lost', $this->name . '.no', AMQP_MANDATORY);
        $this->channel->waitForBasicReturn(PATIENCE_S);
        $returned = [312, 'NO_ROUTE', '', $this->name . '.no'];
        $this->equal($said, ['acked' => 3, 'nacked' => 4, 'returned' => $returned]);
    }

    public function transactions(): void
    {
        $queue = $this->queue($this->name);
        $this->channel->startTransaction();
        $this->publish($this->name, '1');
        $this->channel->rollbackTransaction();
        $this->publish($this->name, '2');
        $this->channel->commitTransaction();
        $got = $queue->get();
        $this->equal($got->getBody(), '2');
        $queue->ack($got->getDeliveryTag());
        $this->channel->commitTransaction();
        $this->equal($queue->declareQueue(), 0);
        $this->refused(AMQPChannelException::class, 406, 'channel is not transactional',
            fn(AMQPChannel $channel) => $channel->commitTransaction());
    }

    // --- Consumers ----------------------------------------------------------------------------------

    public function acksOfEveryKind(): void
    {
        $queue = $this->queue($this->name);
        $this->publish($this->name, '1', '2', '3', '4', '5');
        $this->channel->qos(0, 10);
        $got = $this->consumed($queue, 5, AMQP_NOPARAM);
        $this->equal(array_map(fn($one) => $one->getBody(), $got), ['1', '2', '3', '4', '5']);
        $queue->reject($got[4]->getDeliveryTag(), AMQP_REQUEUE);
        $queue->ack($got[1]->getDeliveryTag(), AMQP_MULTIPLE);
        $queue->nack($got[2]->getDeliveryTag());
        $queue->nack($got[3]->getDeliveryTag(), AMQP_REQUEUE);
        $again = [];
        $queue->consume(function (AMQPEnvelope $one, AMQPQueue $queue) use (&$again): bool {
            $again[$one->getBody()] = $one->isRedelivery();
            $queue->ack($one->getDeliveryTag());
            return count($again) < 2;
        }, AMQP_JUST_CONSUME);
        ksort($again);
        $this->equal($again, [4 => true, 5 => true]);
        $this->check(str_starts_with($queue->getConsumerTag(), 'amq.ctag-'), $queue->getConsumerTag());
        $this->equal(count($this->channel->getConsumers()), 1);
        $queue->cancel();
        $this->equal($queue->declareQueue(), 0);
        $this->publish($this->name, '6');
        $this->equal($queue->get()->getBody(), '6');
        $this->channel->basicRecover(true);
        $this->equal($this->take($queue)->isRedelivery(), true);
    }

    public function aConsumerThatWaitsInVain(): void
    {
        $hasty = new AMQPConnection($this->place('shared', ['read_timeout' => 0.05]));
        $hasty->connect();
        $queue = $this->queue($this->name, [], new AMQPChannel($hasty));
        $thrown = $this->thrown(AMQPQueueException::class, fn() => $queue->consume(fn() => true));
        $this->equal($thrown->getMessage(), 'Consumer timeout exceed');
        $hasty->disconnect();
    }

    /** The extension gives a consumer the arguments of its queue, of whatever kind that is. */
    public function aConsumerWithTheArgumentsOfItsQueue(): void
    {
        $every = [
            'x-message-ttl' => 60000, 'x-expires' => 60000, 'x-max-length' => 10, 'x-max-length-bytes' => 10000,
            'x-overflow' => 'reject-publish', 'x-dead-letter-exchange' => 'amq.fanout', 'x-queue-mode' => 'lazy',
            'x-dead-letter-routing-key' => 'k', 'x-max-priority' => 5, 'x-delivery-limit' => 3,
            'x-message-deduplication' => true, 'x-queue-version' => 2, 'qpid.max_count' => 10,
        ];
        $queue = $this->queue($this->name, $every);
        $this->publish($this->name, '1');
        $this->equal($this->consumed($queue, 1)[0]->getBody(), '1');
        $queue->cancel();
        $single = new AMQPQueue($this->channel);
        $single->setName($this->name . '.s');
        $single->setFlags(AMQP_AUTODELETE);
        $single->setArgument('x-single-active-consumer', true);
        $single->declareQueue();
        $this->publish($this->name . '.s', '2');
        $this->equal($this->consumed($single, 1)[0]->getBody(), '2');
        $single->cancel();
        $quorum = ['x-queue-type' => 'quorum', 'x-delivery-limit' => 3, 'x-quorum-initial-group-size' => 1];
        $lasting = new AMQPQueue($this->channel);
        $lasting->setName($this->name . '.q');
        $lasting->setFlags(AMQP_DURABLE);
        $lasting->setArguments($quorum);
        $lasting->declareQueue();
        $this->publish($this->name . '.q', '3');
        $this->equal($this->consumed($lasting, 1)[0]->getBody(), '3');
        $lasting->delete();
    }

    // --- Queues and exchanges -----------------------------------------------------------------------

    public function exchangesAndBindings(): void
    {
        $queue = $this->queue($this->name);
        $topic = $this->exchange($this->name, AMQP_EX_TYPE_TOPIC, ['alternate-exchange' => $this->name . '.f']);
        $fanout = $this->exchange($this->name . '.f', AMQP_EX_TYPE_FANOUT);
        $queue->bind($this->name, '*.k.#');
        $topic->publish('1', 'a.k.b');
        $topic->publish('lost', 'x');
        $fanout->bind($this->name, 'x');
        $queue->bind($this->name . '.f');
        $topic->publish('2', 'x');
        $fanout->unbind($this->name, 'x');
        $topic->publish('3', 'x');
        $this->equal($this->drained($queue), ['1', '2', '3']);
        $queue->unbind($this->name, '*.k.#');
        $headers = $this->exchange($this->name . '.h', AMQP_EX_TYPE_HEADERS);
        $queue->bind($this->name . '.h', '', ['x-match' => 'all', 'a' => 1, 'b' => 'two']);
        $headers->publish('4', '', AMQP_NOPARAM, ['headers' => ['a' => 1, 'b' => 'two', 'c' => 3]]);
        $headers->publish('5', '', AMQP_NOPARAM, ['headers' => ['a' => 1]]);
        $this->equal($this->drained($queue), ['4']);
        $own = new AMQPQueue($this->channel);
        $own->setFlags(AMQP_EXCLUSIVE);
        $own->declareQueue();
        $this->check(str_starts_with($own->getName(), 'amq.gen-'), $own->getName());
        $this->publish($own->getName(), '6', '7');
        $own->setFlags(AMQP_PASSIVE);
        $this->equal($own->declareQueue(), 2);
        $own->purge();
        $this->publish($own->getName(), '8');
        $this->equal($own->delete(), 1);
    }

    public function errors(): void
    {
        $queue = $this->queue($this->name);
        $missing = function (AMQPChannel $channel): void {
            $queue = new AMQPQueue($channel);
            $queue->setName($this->name . '.no');
            $queue->setFlags(AMQP_PASSIVE);
            $queue->declareQueue();
        };
        $this->refused(AMQPQueueException::class, 404,
            "Server channel error: 404, message: NOT_FOUND - no queue '{$this->name}.no' in vhost '/'", $missing);
        $this->refused(AMQPQueueException::class, 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for "
            . "queue '{$this->name}' in vhost '/': received the value '5' of type 'long' but current is none",
            fn(AMQPChannel $channel) => $this->queue($this->name, ['x-max-length' => 5], $channel));
        $this->refused(AMQPExchangeException::class, 403, 'ACCESS_REFUSED - exchange name', function ($channel) {
            $exchange = new AMQPExchange($channel);
            $exchange->setName('amq.mine');
            $exchange->setType('direct');
            $exchange->declareExchange();
        });
        $other = new AMQPConnection($this->place('shared'));
        $other->connect();
        $exchange = new AMQPExchange(new AMQPChannel($other));
        $exchange->setName($this->name);
        $exchange->setType('odd');
        $thrown = $this->thrown(AMQPConnectionException::class, fn() => $exchange->declareExchange());
        $this->equal($thrown->getCode(), 503);
        $words = "Server connection error: 503, message: COMMAND_INVALID - unknown exchange type 'odd'";
        $this->equal($thrown->getMessage(), $words);
        $this->equal($other->isConnected(), false);
        $this->equal($queue->declareQueue(), 0);
    }

    public function whatRabbitMqAdds(): void
    {
        $dead = $this->queue($this->name . '.dead');
        $letters = ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => $this->name . '.dead'];
        $this->queue($this->name, $letters + ['x-message-ttl' => 1]);
        $this->publish($this->name, 'expired');
        $death = $this->take($dead)->getHeader('x-death')[0];
        $this->check($death['time'] instanceof AMQPTimestamp, $death);
        unset($death['time']);
        ksort($death);
        $this->equal($death, ['count' => 1, 'exchange' => '', 'queue' => $this->name, 'reason' => 'expired',
            'routing-keys' => [$this->name]]);

        $ranked = $this->queue($this->name . '.ranked', ['x-max-priority' => 5]);
        foreach ([1, 5, 3] as $priority) {
            $this->default->publish("$priority", $ranked->getName(), AMQP_NOPARAM, ['priority' => $priority]);
        }
        $this->equal($this->drained($ranked), ['5', '3', '1']);

        $later = $this->exchange($this->name . '.later', 'x-delayed-message', ['x-delayed-type' => 'direct']);
        $ranked->bind($later->getName(), 'k');
        $later->publish('later', 'k', AMQP_NOPARAM, ['headers' => ['x-delay' => 50]]);
        $this->equal($this->take($ranked)->getHeader('x-delay'), -50);

        $this->default->publish('x', $ranked->getName(), AMQP_NOPARAM,
            ['headers' => ['CC' => [$dead->getName()], 'BCC' => [$dead->getName() . '.no']]]);
        $this->equal($this->take($ranked)->getHeaders(), ['CC' => [$dead->getName()]]);
        $this->equal($this->take($dead)->getBody(), 'x');
    }

    public function aStream(): void
    {
        $stream = new AMQPQueue($this->channel);
        $stream->setName($this->name);
        $stream->setFlags(AMQP_DURABLE);
        $stream->setArguments(['x-queue-type' => 'stream', 'x-max-length-bytes' => 1000000]);
        $stream->declareQueue();
        $this->publish($this->name, '0', '1', '2');
        $this->channel->qos(0, 2);
        $stream->setArgument('x-stream-offset', 1);  // The arguments of the queue are the consumer's.
        $got = [];
        $stream->consume(function (AMQPEnvelope $one, AMQPQueue $stream) use (&$got): bool {
            $got[$one->getHeader('x-stream-offset')] = $one->getBody();
            $stream->ack($one->getDeliveryTag());
            return count($got) < 2;
        });
        $this->equal($got, [1 => '1', 2 => '2']);
        $stream->cancel();
        $stream->delete();
    }

    // --- Connections --------------------------------------------------------------------------------

    public function aConnectionThatIsKeptForOthers(): void
    {
        $first = new AMQPConnection($this->place('shared', ['heartbeat' => 60]));
        $first->pconnect();
        $this->equal([$first->isPersistent(), $first->getHeartbeatInterval()], [true, 60]);
        $queue = $this->queue($this->name, [], new AMQPChannel($first));
        unset($queue, $first);
        gc_collect_cycles();
        $second = new AMQPConnection($this->place('shared', ['heartbeat' => 60]));
        $second->pconnect();
        $this->equal($second->isPersistent(), true);
        $second->preconnect();
        $this->equal($this->queue($this->name . '.2', [], new AMQPChannel($second))->declareQueue(), 0);
        $second->pdisconnect();
        $this->equal($second->isConnected(), false);
    }

    public function logins(): void
    {
        $thrown = $this->thrown(AMQPConnectionException::class,
            fn() => (new AMQPConnection($this->place('shared', ['password' => 'wrong'])))->connect());
        $this->check(str_contains($thrown->getMessage(), 'ACCESS_REFUSED - Login was refused using authentication '
            . 'mechanism PLAIN. For details see the broker logfile.'), $thrown->getMessage());
        $thrown = $this->thrown(AMQPConnectionException::class,
            fn() => (new AMQPConnection($this->place('shared', ['vhost' => 'nowhere'])))->connect());
        $this->check(str_contains($thrown->getMessage(), 'vhost nowhere not found'), $thrown->getMessage());
        $secure = ['host' => 'localhost', 'port' => $this->told['kept']['tls'], 'cacert' => $this->told['authority'],
            'cert' => $this->told['certificate'], 'key' => $this->told['key'], 'verify' => true];
        foreach ([AMQP_SASL_METHOD_PLAIN, AMQP_SASL_METHOD_EXTERNAL] as $method) {
            $connection = new AMQPConnection(['sasl_method' => $method] + $secure);
            $connection->setConnectionName($this->name);
            $connection->connect();
            $queue = $this->queue($this->name, [], new AMQPChannel($connection));
            (new AMQPExchange(new AMQPChannel($connection)))->publish(str_repeat('x', 300000), $this->name);
            $this->equal(strlen($this->take($queue)->getBody()), 300000);
            $connection->disconnect();
        }
        $this->thrown(AMQPConnectionException::class, fn() => (new AMQPConnection(
            ['cacert' => $this->told['certificate']] + $secure))->connect());
    }

    public function aBrokerThatIsRestarted(): void
    {
        $connection = new AMQPConnection($this->place('kept'));
        $connection->connect();
        $channel = new AMQPChannel($connection);
        $queue = new AMQPQueue($channel);
        $queue->setName($this->name);
        $queue->setFlags(AMQP_DURABLE);
        $queue->declareQueue();
        (new AMQPExchange($channel))->publish('lasts', $this->name, AMQP_NOPARAM, ['delivery_mode' => 2]);
        $this->equal($queue->declareQueue(), 1);
        say(['ask' => ['restart']]);
        $thrown = $this->thrown(AMQPException::class, fn() => $this->until(fn() => $queue->get() && false));
        $this->answered();
        $this->check(str_contains($thrown->getMessage(), 'CONNECTION_FORCED'), $thrown->getMessage());
        $connection->reconnect(); // Which returns nothing from 2.0 on.
        $this->check($connection->isConnected(), 'it is back');
        $again = new AMQPQueue(new AMQPChannel($connection));
        $again->setName($this->name);
        $this->equal($this->take($again)->getBody(), 'lasts');
        $again->delete();
        $connection->disconnect();
    }
}

run(new Amqp(json_decode($argv[1], true, 16, JSON_THROW_ON_ERROR)));
