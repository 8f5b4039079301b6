<?php
// SPDX-License-Identifier: Apache-2.0
// php amqplib_0_8.php TOLD: scenarios with php-amqplib speaking AMQP 0-8, which it still can.

declare(strict_types=1);

define('AMQP_PROTOCOL', '8.0');

require __DIR__ . '/scenarios.php';
require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

final class Amqplib08 extends Scenarios
{
    private AMQPStreamConnection $connection;
    private AMQPChannel $channel;

    public function begin(string $scenario): void
    {
        parent::begin($scenario);
        ['host' => $host, 'port' => $port] = $this->told['shared'];
        $this->connection = new AMQPStreamConnection($host, $port, 'guest', 'guest', read_write_timeout: PATIENCE_S);
        $this->channel = $this->connection->channel();
        $this->channel->access_request('/data', false, false, true, true, true);
        $this->channel->queue_declare($this->name, false, false, true, false);
    }

    public function end(): void
    {
        $this->connection->close();
    }

    private function publish(string $key, string $body, array $headers = [], string $exchange = ''): void
    {
        $properties = ['content_type' => 'text/plain', 'correlation_id' => 'c', 'delivery_mode' => 2];
        $message = new AMQPMessage($body, $properties + ['application_headers' => new AMQPTable($headers)]);
        $this->channel->basic_publish($message, $exchange, $key);
    }

    private function take(string $queue): AMQPMessage
    {
        return $this->until(fn() => $this->channel->basic_get($queue, true));
    }

    public function inVersion08MessagesAndHeaders(): void
    {
        $headers = ['text' => 'täxt', 'int' => -7, 'long' => 1 << 40, 'yes' => true, 'table' => ['in' => ['deep' => 1]]];
        $this->publish($this->name, str_repeat('x', 300000), $headers);
        $got = $this->take($this->name);
        $this->equal(strlen($got->getBody()), 300000);
        $this->equal([$got->get('content_type'), $got->get('correlation_id'), $got->get('delivery_mode')],
            ['text/plain', 'c', 2]);
        $headers['long'] = (string) $headers['long'];  // In 0-8 there are texts and numbers of 32 bits.
        $headers['yes'] = 1;
        $this->equal($got->get('application_headers')->getNativeData(), $headers);
    }

    public function inVersion08ConsumersAndTransactions(): void
    {
        $this->channel->tx_select();
        foreach (['1', '2', '3'] as $body) {
            $this->publish($this->name, $body);
        }
        $this->channel->tx_commit();
        $this->channel->basic_qos(0, 5, false);
        $got = [];
        $this->channel->basic_consume($this->name, 'mine', callback: function (AMQPMessage $message) use (&$got): void {
            $got[] = $message->getBody();
            $message->ack();
        });
        while (count($got) < 3) {
            $this->channel->wait(null, false, PATIENCE_S);
        }
        $this->channel->basic_cancel('mine');
        $this->channel->tx_commit();
        $this->equal($got, ['1', '2', '3']);
        $this->equal($this->channel->queue_declare($this->name, true), [$this->name, 0, 0]);
    }

    public function inVersion08ReturnsBindingsAndErrors(): void
    {
        $said = [];
        $this->channel->set_return_listener(function ($code, $text, $exchange, $key, $message) use (&$said): void {
            $said[] = "$code $text $key {$message->getBody()}";
        });
        $this->channel->basic_publish(new AMQPMessage('lost'), 'amq.direct', 'nowhere', true);
        $this->channel->wait(null, false, PATIENCE_S);
        $this->equal($said, ['312 NO_ROUTE nowhere lost']);
        $this->channel->exchange_declare($this->name, 'topic');
        $this->channel->queue_bind($this->name, $this->name, '*.k');
        $this->publish('a.k', 'x', [], $this->name);
        $this->equal($this->take($this->name)->getBody(), 'x');
        $this->channel->exchange_delete($this->name);
        $thrown = $this->thrown(AMQPProtocolChannelException::class,
            fn() => $this->connection->channel()->queue_declare($this->name . '.no', true));
        $this->equal([$thrown->getCode(), $thrown->getMessage()],
            [404, "NOT_FOUND - no queue '{$this->name}.no' in vhost '/'"]);
    }
}

run(new Amqplib08(json_decode($argv[1], true, 16, JSON_THROW_ON_ERROR)));
