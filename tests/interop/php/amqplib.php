<?php
// SPDX-License-Identifier: Apache-2.0
// php amqplib.php TOLD: scenarios with php-amqplib, which is all PHP.

declare(strict_types=1);

require __DIR__ . '/scenarios.php';
require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AbstractConnection;
use PhpAmqpLib\Connection\AMQPConnectionConfig;
use PhpAmqpLib\Connection\AMQPConnectionFactory;
use PhpAmqpLib\Connection\AMQPLazyConnection;
use PhpAmqpLib\Connection\AMQPSocketConnection;
use PhpAmqpLib\Connection\AMQPSSLConnection;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPBasicCancelException;
use PhpAmqpLib\Exception\AMQPConnectionBlockedException;
use PhpAmqpLib\Exception\AMQPConnectionClosedException;
use PhpAmqpLib\Exception\AMQPIOException;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPArray;
use PhpAmqpLib\Wire\AMQPDecimal;
use PhpAmqpLib\Wire\AMQPTable;

final class Amqplib extends Scenarios
{
    private AMQPStreamConnection $connection;
    private AMQPChannel $channel;

    public function begin(string $scenario): void
    {
        parent::begin($scenario);
        $this->connection = $this->connect('shared');
        $this->channel = $this->connection->channel();
    }

    public function end(): void
    {
        $this->connection->close();
    }

    private function connect(string $which, string $vhost = '/', int $heartbeat = 0): AMQPStreamConnection
    {
        ['host' => $host, 'port' => $port] = $this->told[$which];
        return new AMQPStreamConnection($host, $port, 'guest', 'guest', $vhost, heartbeat: $heartbeat,
            read_write_timeout: PATIENCE_S, channel_rpc_timeout: PATIENCE_S);
    }

    /** @param array<string, mixed> $arguments */
    private function queue(string $name, array $arguments = []): string
    {
        return $this->channel->queue_declare($name, false, false, true, false, false, new AMQPTable($arguments))[0];
    }

    private function exchange(string $name, string $type, array $arguments = [], bool $internal = false): void
    {
        $this->channel->exchange_declare(
            $name, $type, false, false, true, $internal, false, new AMQPTable($arguments));
    }

    private function publish(string $key, string $body, array $properties = [], string $exchange = ''): void
    {
        if (isset($properties['headers'])) {
            $properties['application_headers'] = new AMQPTable($properties['headers']);
            unset($properties['headers']);
        }
        $this->channel->basic_publish(new AMQPMessage($body, $properties), $exchange, $key);
    }

    private function take(string $queue): AMQPMessage
    {
        return $this->until(fn() => $this->channel->basic_get($queue, true));
    }

    /** @return array<string, mixed> */
    private function headers(AMQPMessage $message): array
    {
        return $message->get('application_headers')->getNativeData();
    }

    /** @return list<string> */
    private function drained(string $queue): array
    {
        for ($found = []; $got = $this->channel->basic_get($queue, true);) {
            $found[] = $got->getBody();
        }
        return $found;
    }

    /** The first so many that a consumer gets. @return list<AMQPMessage> */
    private function consumed(string $queue, int $count, bool $noAck = true, array $arguments = []): array
    {
        $found = [];
        $got = function (AMQPMessage $message) use (&$found): void {
            $found[] = $message;
        };
        $tag = $this->channel->basic_consume($queue, '', false, $noAck, false, false, $got, null,
            new AMQPTable($arguments));
        while (count($found) < $count) {
            $this->channel->wait(null, false, PATIENCE_S);
        }
        $this->channel->basic_cancel($tag);
        return array_slice($found, 0, $count);
    }

    private function refused(int $code, string $words, callable $act): void
    {
        $channel = $this->connection->channel();
        $thrown = $this->thrown(AMQPProtocolChannelException::class, fn() => $act($channel));
        $this->check(str_contains($thrown->getMessage(), $words), $thrown->getMessage());
        $this->equal($thrown->getCode(), $code);
        $this->equal($channel->is_open(), false);
        $this->check($this->connection->isConnected(), 'the connection remains');
    }

    // --- Messages -----------------------------------------------------------------------------------

    public function everyPropertyAndTypeOfValue(): void
    {
        $this->queue($this->name);
        $table = new AMQPTable(['text' => 'täxt', 'int' => 7, 'long' => PHP_INT_MAX, 'yes' => true, 'none' => null,
            'list' => [1, 'two', [3, ['deep' => 'x']]], 'table' => ['in' => ['deep' => 'x']], 'empty' => [],
            'float as text' => 2.5, 'octets' => "\xff\0", 'decimal' => new AMQPDecimal(-12345, 2)]);
        $table->set('byte', -3, AMQPTable::T_INT_SHORTSHORT);
        $table->set('unsigned byte', 250, AMQPTable::T_INT_SHORTSHORT_U);
        $table->set('short', -300, AMQPTable::T_INT_SHORT);
        $table->set('unsigned short', 65000, AMQPTable::T_INT_SHORT_U);
        $table->set('unsigned int', 4000000000, AMQPTable::T_INT_LONG_U);
        $table->set('small long', 5, AMQPTable::T_INT_LONGLONG);
        $table->set('date', 1700000000, AMQPTable::T_TIMESTAMP);
        $table->set('bytes', "\0\xff", AMQPTable::T_BYTES);
        $table->set('array', new AMQPArray(['a', 1]));
        $sent = ['content_type' => 'text/plain', 'content_encoding' => 'utf-8', 'delivery_mode' => 2,
            'priority' => 7, 'correlation_id' => 'c', 'reply_to' => 'r', 'expiration' => '60000', 'message_id' => 'm',
            'timestamp' => 1700000000, 'type' => 't', 'user_id' => 'guest', 'app_id' => 'a', 'cluster_id' => 'z'];
        $message = new AMQPMessage('body', $sent + ['application_headers' => $table]);
        $this->channel->basic_publish($message, '', $this->name);
        $got = $this->take($this->name);
        $this->equal($got->getBody(), 'body');
        $properties = $got->get_properties();
        $headers = $properties['application_headers'];
        unset($properties['application_headers']);
        ksort($properties);
        ksort($sent);
        $this->equal(array_map('strval', $properties), array_map('strval', $sent));
        $found = $headers->getNativeData();
        $wanted = $table->getNativeData();
        foreach (iterator_to_array($headers) as $name => [$type, $value]) {
            $this->equal([$name, $type], [$name, iterator_to_array($table)[$name][0]]);
        }
        $this->equal($found['date']->getTimestamp(), 1700000000);
        $this->equal([$found['decimal']->getN(), $found['decimal']->getE()], [-12345, 2]);
        unset($found['date'], $found['decimal'], $wanted['date'], $wanted['decimal']);
        ksort($found);
        ksort($wanted);
        $this->equal($found, $wanted);
        $this->publish($this->name, '');
        $this->equal($this->take($this->name)->getBody(), '');
        $this->equal($this->channel->basic_get($this->name), null);
    }

    public function bigMessages(): void
    {
        $this->queue($this->name);
        foreach ([131063, 131064, 131065, 1000003] as $size) {
            $body = random_bytes($size);
            $this->publish($this->name, $body);
            $this->check($this->take($this->name)->getBody() === $body, "a body of $size octets");
        }
    }

    // --- Publishers ---------------------------------------------------------------------------------

    public function confirmsOneByOneAndInBatches(): void
    {
        $this->queue($this->name);
        $this->channel->confirm_select();
        $acked = [];
        $this->channel->set_ack_handler(function (AMQPMessage $message) use (&$acked): void {
            $acked[] = $message->getBody();
        });
        for ($number = 0; $number < 300; $number++) {
            $this->channel->batch_basic_publish(new AMQPMessage("$number"), '', $this->name);
        }
        $this->channel->publish_batch();
        $this->channel->wait_for_pending_acks(PATIENCE_S);
        $this->publish($this->name, '300', ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT]);
        $this->channel->wait_for_pending_acks(PATIENCE_S);
        $wanted = array_map('strval', range(0, 300));
        $this->equal($acked, $wanted);
        $this->equal($this->drained($this->name), $wanted);
    }

    public function nacksAndReturns(): void
    {
        $this->queue($this->name, ['x-max-length' => 1, 'x-overflow' => 'reject-publish']);
        $this->channel->confirm_select();
        $said = [];
        $this->channel->set_nack_handler(function (AMQPMessage $message) use (&$said): void {
            $said[] = 'nacked ' . $message->getBody();
        });
        $this->channel->set_ack_handler(function (AMQPMessage $message) use (&$said): void {
            $said[] = 'acked ' . $message->getBody();
        });
        $this->channel->set_return_listener(function ($code, $text, $exchange, $key, $message) use (&$said): void {
            $said[] = "$code $text $exchange/$key {$message->getBody()}";
        });
        $this->publish($this->name, '1');
        $this->publish($this->name, '2');
        $this->channel->wait_for_pending_acks(PATIENCE_S);
        $this->channel->basic_publish(new AMQPMessage('3'), 'amq.direct', $this->name, true);
        $this->channel->wait_for_pending_acks_returns(PATIENCE_S);
        $this->equal($said, ['acked 1', 'nacked 2', "312 NO_ROUTE amq.direct/{$this->name} 3", 'acked 3']);
    }

    public function transactions(): void
    {
        $this->queue($this->name);
        $this->channel->tx_select();
        $this->publish($this->name, '1');
        $this->channel->tx_rollback();
        $this->publish($this->name, '2');
        $this->channel->tx_commit();
        $this->channel->basic_get($this->name)->ack();
        $this->channel->tx_commit();
        $this->channel->close();
        $this->channel = $this->connection->channel();
        $this->equal($this->drained($this->name), []);
        $this->refused(406, 'channel is not transactional', fn($channel) => $channel->tx_commit());
    }

    // --- Consumers ----------------------------------------------------------------------------------

    public function acksOfEveryKind(): void
    {
        $this->queue($this->name);
        foreach (['1', '2', '3', '4', '5', '6'] as $body) {
            $this->publish($this->name, $body);
        }
        $this->channel->basic_qos(0, 10, false);
        $got = [];
        $tag = $this->channel->basic_consume($this->name, '', callback: function (AMQPMessage $message) use (&$got) {
            $got[] = $message;
            if (count($got) === 6) {
                $this->channel->stopConsume();
            }
        });
        $this->check(str_starts_with($tag, 'amq.ctag-'), $tag);
        $this->channel->consume();
        $this->equal(array_map(fn($one) => $one->getDeliveryTag(), $got), [1, 2, 3, 4, 5, 6]);
        $got[1]->ack(true);
        $got[2]->nack();
        $got[3]->reject(false);
        $got[4]->nack(true);
        $this->channel->wait(null, false, PATIENCE_S);
        $this->equal([$got[6]->getBody(), $got[6]->isRedelivered()], ['5', true]);
        $this->channel->basic_recover(true);
        $this->channel->wait(null, false, PATIENCE_S);
        $this->channel->wait(null, false, PATIENCE_S);
        $this->equal([$got[7]->getBody(), $got[8]->getBody()], ['5', '6']);
        $this->channel->basic_ack(0, true);
        $this->channel->basic_cancel($tag);
        $this->equal($this->channel->is_consuming(), false);
        $this->equal($this->channel->queue_declare($this->name, true), [$this->name, 0, 0]);
    }

    public function waitingInVain(): void
    {
        $this->queue($this->name);
        $this->channel->basic_consume($this->name, 'mine', callback: fn() => null);
        $this->thrown(AMQPTimeoutException::class, fn() => $this->channel->wait(null, false, 0.02));
        $this->equal($this->channel->wait(null, true), null);
        $this->connection->channel()->queue_delete($this->name);
        $thrown = $this->thrown(AMQPBasicCancelException::class,
            fn() => $this->channel->wait(null, false, PATIENCE_S));
        $this->equal($thrown->consumerTag, 'mine');
    }

    public function flow(): void
    {
        $this->queue($this->name);
        $got = [];
        $this->channel->basic_consume($this->name, '', false, true, callback: function ($message) use (&$got): void {
            $got[] = $message->getBody();
        });
        $this->channel->flow(false);
        $this->publish($this->name, 'x');
        $this->equal($this->channel->queue_declare($this->name, true)[1], 1);
        $this->channel->flow(true);
        $this->channel->wait(null, false, PATIENCE_S);
        $this->equal($got, ['x']);
    }

    // --- Queues and exchanges -----------------------------------------------------------------------

    public function exchangesAndBindings(): void
    {
        $queue = $this->queue($this->name);
        $this->exchange($this->name . '.f', 'fanout');
        $this->exchange($this->name, 'topic', ['alternate-exchange' => $this->name . '.f']);
        $this->channel->queue_bind($queue, $this->name, '*.k.#');
        $this->channel->queue_bind($queue, $this->name . '.f');
        foreach (['a.k', 'x', 'a.k.b.c'] as $key) {
            $this->publish($key, $key, [], $this->name);
        }
        $this->equal($this->drained($queue), ['a.k', 'x', 'a.k.b.c']);
        $this->exchange($this->name . '.i', 'headers', [], true);
        $this->channel->exchange_bind($this->name . '.i', $this->name . '.f');
        $any = new AMQPTable(['x-match' => 'any', 'a' => 1, 'b' => 'two']);
        $other = $this->queue($this->name . '.other');
        $this->channel->queue_bind($other, $this->name . '.i', '', false, $any);
        $this->publish('', '1', ['headers' => ['a' => 1, 'b' => 'one']], $this->name . '.f');
        $this->publish('', '2', ['headers' => ['a' => 2]], $this->name . '.f');
        $this->equal($this->drained($other), ['1']);
        $this->refused(403, 'cannot publish to internal exchange', function (AMQPChannel $channel): void {
            $channel->basic_publish(new AMQPMessage('x'), $this->name . '.i');
            $channel->wait(null, false, PATIENCE_S);
        });
        $this->channel->exchange_unbind($this->name . '.i', $this->name . '.f');
        $this->channel->queue_unbind($queue, $this->name, '*.k.#');
        $this->equal($this->channel->queue_purge($queue), 2);
        $own = $this->queue('');
        $this->check(str_starts_with($own, 'amq.gen-'), $own);
        $this->equal($this->channel->queue_delete($own), 0);
    }

    public function errors(): void
    {
        $this->queue($this->name);
        $no = $this->name . '.no';
        $this->refused(404, "NOT_FOUND - no queue '$no' in vhost '/'", fn($channel) => $channel->queue_declare($no, true));
        $this->refused(404, "NOT_FOUND - no queue '$no' in vhost '/'", fn($channel) => $channel->basic_get($no));
        $this->refused(406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{$this->name}' in vhost '/': "
            . "received 'true' but current is 'false'",
            fn($channel) => $channel->queue_declare($this->name, false, true, true, true));
        $this->refused(403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
            fn($channel) => $channel->queue_declare('amq.mine'));
        $other = $this->connect('shared');
        $thrown = $this->thrown(AMQPConnectionClosedException::class,
            fn() => $other->channel()->exchange_declare($this->name, 'odd'));
        $this->equal($thrown->getCode(), 503);
        $this->equal($thrown->getMessage(), "COMMAND_INVALID - unknown exchange type 'odd'(40, 10)");
        $this->equal($other->isConnected(), false);
    }

    // --- What RabbitMQ and its plugins add ----------------------------------------------------------

    public function answersBySpecialAddress(): void
    {
        $this->queue($this->name);
        $answers = [];
        $this->channel->basic_consume('amq.rabbitmq.reply-to', '', false, true,
            callback: function (AMQPMessage $answer) use (&$answers): void {
                $answers[$answer->get('correlation_id')] = $answer->getBody();
            });
        $server = $this->connection->channel();
        $server->basic_consume($this->name, callback: function (AMQPMessage $request) use ($server): void {
            $properties = ['correlation_id' => $request->get('correlation_id')];
            $server->basic_publish(
                new AMQPMessage(strtoupper($request->getBody()), $properties), '', $request->get('reply_to'));
            $request->ack();
        });
        foreach (['a', 'b'] as $body) {
            $this->publish($this->name, $body, ['reply_to' => 'amq.rabbitmq.reply-to', 'correlation_id' => "for $body"]);
            $server->wait(null, false, PATIENCE_S);
            $this->channel->wait(null, false, PATIENCE_S);
        }
        $this->equal($answers, ['for a' => 'A', 'for b' => 'B']);
    }

    public function deathsPrioritiesAndLimits(): void
    {
        $dead = $this->queue($this->name . '.dead');
        $letters = ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => $dead];
        $this->queue($this->name, $letters + ['x-max-length' => 2, 'x-max-priority' => 5]);
        foreach ([1, 4, 2] as $priority) {
            $this->publish($this->name, "$priority", ['priority' => $priority]);
        }
        $this->equal($this->take($dead)->getBody(), '4');  // Which was the head, as in RabbitMQ.
        $this->channel->basic_get($this->name)->reject(false);
        $rejected = $this->take($dead);
        $headers = $this->headers($rejected);
        $death = $headers['x-death'][0];
        $this->check(abs($death['time']->getTimestamp() - time()) < 120, $death);
        unset($death['time']);
        ksort($death);
        $this->equal($death, ['count' => 1, 'exchange' => '', 'queue' => $this->name, 'reason' => 'rejected',
            'routing-keys' => [$this->name]]);
        $this->equal([$rejected->getBody(), $headers['x-first-death-reason']], ['2', 'rejected']);
        $this->publish($this->name, 'expires', ['expiration' => '1']);
        $this->equal($this->headers($this->take($dead))['x-death'][0]['original-expiration'], '1');
        $this->equal($this->drained($this->name), ['1']);
    }

    public function quorumQueuesAndStreams(): void
    {
        $limits = new AMQPTable(['x-queue-type' => 'quorum', 'x-delivery-limit' => 1]);
        $this->channel->queue_declare($this->name, false, true, false, false, false, $limits);
        $this->publish($this->name, 'poison');
        $this->channel->basic_get($this->name)->nack(true);
        $again = $this->channel->basic_get($this->name);
        $this->equal($this->headers($again), ['x-delivery-count' => 1]);
        $again->nack(true);
        $this->equal($this->channel->basic_get($this->name), null);
        $this->channel->queue_delete($this->name);

        $stream = $this->name . '.stream';
        $kept = new AMQPTable(['x-queue-type' => 'stream', 'x-max-age' => '1h']);
        $this->channel->queue_declare($stream, false, true, false, false, false, $kept);
        $this->channel->confirm_select();
        foreach (['0', '1', '2'] as $body) {
            $this->publish($stream, $body);
        }
        $this->channel->wait_for_pending_acks(PATIENCE_S);
        $this->channel->basic_qos(0, 5, false);
        foreach (['first' => ['0', '1', '2'], 1 => ['1', '2'], 'last' => ['2']] as $offset => $wanted) {
            $got = $this->consumed($stream, count($wanted), false, ['x-stream-offset' => $offset]);
            $this->equal(array_map(fn($one) => $one->getBody(), $got), $wanted);
            $this->equal($this->headers($got[0])['x-stream-offset'], (int) $wanted[0]);
        }
        $this->channel->queue_delete($stream);
    }

    public function consumersThatAreChosen(): void
    {
        $this->queue($this->name, ['x-single-active-consumer' => true]);
        $got = [];
        $channels = [];
        foreach (['first', 'second'] as $who) {
            $channels[$who] = $this->connection->channel();
            $channels[$who]->basic_consume($this->name, $who, false, true,
                callback: function (AMQPMessage $message) use (&$got, $who): void {
                    $got[] = "$who {$message->getBody()}";
                });
        }
        $this->publish($this->name, '1');
        $channels['first']->wait(null, false, PATIENCE_S);
        $channels['first']->close();
        $this->publish($this->name, '2');
        $channels['second']->wait(null, false, PATIENCE_S);
        $other = $this->queue($this->name . '.p');
        foreach ([-1, 10] as $priority) {
            $this->channel->basic_consume($other, "priority $priority", false, true,
                callback: function (AMQPMessage $message) use (&$got): void {
                    $got[] = "{$message->getConsumerTag()} {$message->getBody()}";
                }, arguments: new AMQPTable(['x-priority' => $priority]));
        }
        $this->publish($other, 'x');
        $this->channel->wait(null, false, PATIENCE_S);
        $this->equal($got, ['first 1', 'second 2', 'priority 10 x']);
    }

    public function exchangesOfPlugins(): void
    {
        $queue = $this->queue($this->name);
        $this->exchange($this->name, 'x-delayed-message', ['x-delayed-type' => 'fanout']);
        $this->channel->queue_bind($queue, $this->name);
        $this->publish('', 'in an hour', ['headers' => ['x-delay' => 3600000]], $this->name);
        foreach (['sooner' => 10, 'later' => 60] as $body => $delay) {
            $this->publish('', $body, ['headers' => ['x-delay' => $delay]], $this->name);
            [$got] = $this->consumed($queue, 1);
            $this->equal($got->getBody(), $body);
            $this->equal($this->headers($got), ['x-delay' => -$delay]);
        }

        $other = $this->queue($this->name . '.other');
        $blind = $this->queue($this->name . '.blind');
        $this->publish($queue, 'x', ['headers' => ['CC' => [$other], 'BCC' => [$blind]]]);
        foreach ([$queue, $other, $blind] as $place) {
            $this->equal($this->headers($this->take($place)), ['CC' => [$other]]);
        }

        $this->exchange($this->name . '.hash', 'x-consistent-hash');
        $this->channel->queue_bind($queue, $this->name . '.hash', '1');
        $this->channel->queue_bind($other, $this->name . '.hash', '1');
        for ($number = 0; $number < 40; $number++) {
            $this->publish('k' . $number % 10, 'k' . $number % 10, [], $this->name . '.hash');
        }
        [$first, $second] = [$this->drained($queue), $this->drained($other)];
        $this->equal(count($first) + count($second), 40);
        $this->equal(array_intersect($first, $second), []);

        $once = $this->queue($this->name . '.once', ['x-message-deduplication' => true]);
        foreach (['a', 'b', 'a'] as $id) {
            $this->publish($once, $id, ['headers' => ['x-deduplication-header' => $id]]);
        }
        $this->equal($this->drained($once), ['a', 'b']);
    }

    // --- Connections --------------------------------------------------------------------------------

    private function works(AbstractConnection $connection): void
    {
        $channel = $connection->channel();
        [$queue] = $channel->queue_declare('', false, false, true);
        $channel->basic_publish(new AMQPMessage(str_repeat('x', 300000)), '', $queue);
        $this->equal(strlen($channel->basic_get($queue, true)->getBody()), 300000);
        $connection->close();
    }

    public function connectionsOfEveryKind(): void
    {
        ['host' => $host, 'port' => $port] = $this->told['shared'];
        $this->works(new AMQPSocketConnection($host, $port, 'guest', 'guest'));
        $lazy = new AMQPLazyConnection($host, $port, 'guest', 'guest');
        $this->equal($lazy->isConnected(), false);
        $this->works($lazy);
        $this->works(AMQPStreamConnection::create_connection([
            ['host' => $host, 'port' => 1, 'user' => 'guest', 'password' => 'guest'],
            ['host' => $host, 'port' => $port, 'user' => 'guest', 'password' => 'wrong'],
            ['host' => $host, 'port' => $port, 'user' => 'guest', 'password' => 'guest', 'vhost' => '/'],
        ]));
        $config = new AMQPConnectionConfig();
        $config->setHost($host);
        $config->setPort($port);
        $config->setLoginMethod(AMQPConnectionConfig::AUTH_PLAIN);
        $config->setConnectionName($this->name);
        $connection = AMQPConnectionFactory::create($config);
        $this->check((bool) $connection->getServerProperties()['capabilities'][1]['publisher_confirms'][1], 'it can');
        $this->works($connection);
        foreach (['AMQPLAIN', 'PLAIN'] as $method) {
            $thrown = $this->thrown(AMQPConnectionClosedException::class, fn() => new AMQPStreamConnection(
                $host, $port, 'guest', 'wrong', '/', false, $method));
            $this->equal($thrown->getCode(), 403);
            $this->equal($thrown->getMessage(), 'ACCESS_REFUSED - Login was refused using authentication mechanism '
                . "$method. For details see the broker logfile.(10, 11)");
        }
        $thrown = $this->thrown(AMQPConnectionClosedException::class, fn() => $this->connect('shared', 'nowhere'));
        $this->equal([$thrown->getCode(), $thrown->getMessage()], [530, 'NOT_ALLOWED - vhost nowhere not found(10, 40)']);
    }

    public function certificates(): void
    {
        $own = ['cafile' => $this->told['authority'], 'local_cert' => $this->told['certificate'],
            'local_pk' => $this->told['key'], 'verify_peer' => true, 'verify_peer_name' => true];
        $port = $this->told['kept']['tls'];
        $this->works(new AMQPSSLConnection('localhost', $port, 'guest', 'guest', '/', $own));
        $config = new AMQPConnectionConfig();
        $config->setHost('localhost');
        $config->setPort($port);
        $config->setIsSecure(true);
        $config->setNetworkProtocol('ssl');
        $config->setUser('');
        $config->setPassword('');
        $config->setLoginMethod(AMQPConnectionConfig::AUTH_EXTERNAL);
        $config->setSslCaCert($this->told['authority']);
        $config->setSslCert($this->told['certificate']);
        $config->setSslKey($this->told['key']);
        $config->setSslVerify(true);
        $this->works(AMQPConnectionFactory::create($config));
        $this->thrown(AMQPIOException::class, fn() => new AMQPSSLConnection('localhost', $port, 'guest', 'guest', '/',
            ['cafile' => $this->told['certificate']] + $own));
    }

    public function anAlarmBlocksPublishers(): void
    {
        $held = $this->connect('kept', 'held');
        $said = [];
        $held->set_connection_block_handler(function (string $reason) use (&$said): void {
            $said[] = "blocked: $reason";
        });
        $held->set_connection_unblock_handler(function () use (&$said): void {
            $said[] = 'unblocked';
        });
        $channel = $held->channel();
        [$queue] = $channel->queue_declare('', false, false, true);
        $this->ask('alarm', 'set', '--vhost', 'held', '--reason', 'moving house');
        $channel->basic_publish(new AMQPMessage('waits'), '', $queue);
        $step = function () use ($channel): void {
            try {
                $channel->wait(null, false, 0.05);
            } catch (AMQPTimeoutException) {
                // It is what is told that counts.
            }
        };
        while ($said === []) {
            $step();
        }
        $this->equal($held->isBlocked(), true);
        $this->thrown(AMQPConnectionBlockedException::class,
            fn() => $channel->basic_publish(new AMQPMessage('x'), '', $queue));
        $this->ask('alarm', 'clear', '--vhost', 'held');
        while (count($said) < 2) {
            $step();
        }
        $this->equal($said, ['blocked: moving house', 'unblocked']);
        $this->equal($channel->basic_get($queue, true)->getBody(), 'waits');
        $held->close();
    }

    public function policiesHold(): void
    {
        $kept = $this->connect('kept');
        $channel = $kept->channel();
        $channel->queue_declare($this->name);
        foreach (['1', '2', '3'] as $body) {
            $channel->basic_publish(new AMQPMessage($body), '', $this->name);
        }
        $this->equal($channel->queue_declare($this->name, true)[1], 3);
        $this->ask('policy', 'set', $this->name, '^' . $this->name . '$', '{"max-length": 1}');
        $this->until(fn() => $channel->queue_declare($this->name, true)[1] === 1);
        $this->equal($channel->basic_get($this->name, true)->getBody(), '3');
        $this->ask('policy', 'clear', $this->name);
        $channel->queue_delete($this->name);
        $kept->close();
    }

    public function aBrokerThatIsRestarted(): void
    {
        $connection = $this->connect('kept');
        $channel = $connection->channel();
        $channel->queue_declare($this->name, false, true, false, false);
        $channel->confirm_select();
        $channel->basic_publish(new AMQPMessage('lasts', ['delivery_mode' => 2]), '', $this->name);
        $channel->wait_for_pending_acks(PATIENCE_S);
        $channel->basic_consume($this->name, callback: fn() => null);
        $channel->wait(null, false, PATIENCE_S);
        say(['ask' => ['restart']]);
        $thrown = $this->thrown(AMQPConnectionClosedException::class,
            fn() => $channel->wait(null, false, PATIENCE_S));
        $this->answered();
        $this->equal($thrown->getCode(), 320);
        $words = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'(0, 0)";
        $this->equal($thrown->getMessage(), $words);
        $connection->reconnect();
        $channel = $connection->channel();
        $got = $channel->basic_get($this->name, true);
        $this->equal([$got->getBody(), $got->isRedelivered()], ['lasts', true]);
        $channel->queue_delete($this->name);
        $connection->close();
    }

    public function heartbeats(): void
    {
        $beating = $this->connect('shared', heartbeat: 2);
        $channel = $beating->channel();
        $until = microtime(true) + 4.5;  // Either would end it after four seconds.
        while (microtime(true) < $until) {
            try {
                $channel->wait(null, false, 0.2);
            } catch (AMQPTimeoutException) {
                $beating->checkHeartBeat();
            }
        }
        $this->works($beating);
    }
}

run(new Amqplib(json_decode($argv[1], true, 16, JSON_THROW_ON_ERROR)));
