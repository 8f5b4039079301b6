// SPDX-License-Identifier: Apache-2.0
// node amqplib_scenarios.cjs MODULE SCENARIO URL NAME PATIENCE_S: a scenario with Node's amqplib.
'use strict';

const assert = require('node:assert/strict');
const {once} = require('node:events');

const [module_, scenario, url, name, patience] = process.argv.slice(2);
const amqplib = require(module_);
const callbacks = require(`${module_}/callback_api`);

const deadline = setTimeout(() => {
  console.error(`${scenario}: not done within ${patience} s`);
  process.exit(2);
}, 1000 * patience);

// Deliveries of one consumer, to be awaited one by one.
class Inbox {
  constructor() {
    this.got = [];
    this.waiting = [];
  }
  put = (message) => {
    const resolve = this.waiting.shift();
    if (resolve) resolve(message);
    else this.got.push(message);
  };
  take() {
    if (this.got.length) return Promise.resolve(this.got.shift());
    return new Promise((resolve) => this.waiting.push(resolve));
  }
}

const text = (message) => message.content.toString();

async function withChannel(work) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createConfirmChannel();
  await work(channel, connection);
  await channel.close();
  await connection.close();
}

const scenarios = {
  async confirmed_publish_and_get() {
    await withChannel(async (channel, connection) => {
      const server = connection.connection.serverProperties;
      assert.equal(server.capabilities.publisher_confirms, true);
      await channel.assertQueue(name, {exclusive: true});
      const options = {
        persistent: true, priority: 4, correlationId: 'c', replyTo: 'r', messageId: 'm',
        expiration: 60000, type: 't', appId: 'a', contentType: 'text/plain', timestamp: 1700000000,
        headers: {n: 1, big: 2 ** 40, ratio: 0.5, list: [1, 'x', {deep: true}], none: null},
      };
      channel.sendToQueue(name, Buffer.from('body'), options);
      await channel.waitForConfirms();
      const message = await channel.get(name);
      assert.equal(text(message), 'body');
      assert.deepEqual({...message.properties.headers}, options.headers);
      assert.equal(message.properties.expiration, '60000');
      assert.equal(message.properties.deliveryMode, 2);
      for (const key of ['priority', 'correlationId', 'replyTo', 'messageId', 'type', 'appId']) {
        assert.equal(message.properties[key], options[key]);
      }
      channel.ack(message);
      assert.equal(await channel.get(name), false);
    });
  },

  async many_confirms() {
    await withChannel(async (channel) => {
      await channel.assertQueue(name, {exclusive: true});
      let confirmed = 0;
      for (let number = 0; number < 2000; number++) {
        channel.sendToQueue(name, Buffer.from(String(number)), {}, (error) => {
          assert.equal(error, null);
          confirmed += 1;
        });
      }
      await channel.waitForConfirms();
      assert.equal(confirmed, 2000);
      const inbox = new Inbox();
      await channel.prefetch(100);
      await channel.consume(name, inbox.put);
      for (let number = 0; number < 2000; number++) {
        const message = await inbox.take();
        assert.equal(text(message), String(number));
        channel.ack(message);
      }
    });
  },

  async nack_reject_and_ack_all() {
    await withChannel(async (channel) => {
      await channel.assertQueue(name, {exclusive: true});
      const inbox = new Inbox();
      const {consumerTag} = await channel.consume(name, inbox.put);
      for (const body of ['1', '2', '3']) channel.sendToQueue(name, Buffer.from(body));
      const first = await inbox.take();
      assert.equal(first.fields.redelivered, false);
      channel.nack(first, false, true);
      const got = [await inbox.take(), await inbox.take(), await inbox.take()];
      assert.deepEqual(got.map(text).sort(), ['1', '2', '3']);
      channel.reject(got[0], false);
      channel.ackAll();
      await channel.cancel(consumerTag);
      assert.equal((await channel.checkQueue(name)).messageCount, 0);
      channel.sendToQueue(name, Buffer.from('4'));
      await channel.waitForConfirms();
      const last = await channel.get(name);
      channel.nackAll(true);
      assert.equal(text(last), '4');
      await channel.recover();
      assert.equal((await channel.get(name)).fields.redelivered, true);
    });
  },

  async returned_and_nacked() {
    await withChannel(async (channel) => {
      const returned = once(channel, 'return');
      channel.publish('', name, Buffer.from('lost'), {mandatory: true});
      const [message] = await returned;
      assert.equal(message.fields.replyCode, 312);
      assert.equal(message.fields.replyText, 'NO_ROUTE');
      assert.equal(text(message), 'lost');
      const full = {'x-overflow': 'reject-publish'};
      await channel.assertQueue(name, {exclusive: true, maxLength: 1, arguments: full});
      channel.sendToQueue(name, Buffer.from('1'));
      await channel.waitForConfirms();
      const error = await new Promise((resolve) => {
        channel.sendToQueue(name, Buffer.from('2'), {}, resolve);
      });
      assert.match(error.message, /nacked/);
    });
  },

  async exchanges_and_bindings() {
    await withChannel(async (channel) => {
      await channel.assertExchange(name, 'topic', {autoDelete: true});
      await channel.assertExchange(`${name}.f`, 'fanout', {autoDelete: true});
      await channel.bindExchange(name, `${name}.f`, '');
      const {queue} = await channel.assertQueue('', {exclusive: true});
      assert.match(queue, /^amq\.gen-/);
      await channel.bindQueue(queue, name, '*.x.#');
      channel.publish(`${name}.f`, 'a.x.b.c', Buffer.from('yes'));
      channel.publish(`${name}.f`, 'x', Buffer.from('no'));
      await channel.waitForConfirms();
      assert.equal(text(await channel.get(queue, {noAck: true})), 'yes');
      assert.equal(await channel.get(queue), false);
      await channel.unbindQueue(queue, name, '*.x.#');
      assert.equal((await channel.deleteQueue(queue)).messageCount, 0);
    });
  },

  async cancelled_by_the_broker() {
    await withChannel(async (channel, connection) => {
      await channel.assertQueue(name, {exclusive: true});
      const inbox = new Inbox();
      await channel.consume(name, inbox.put);
      const other = await connection.createChannel();
      await other.deleteQueue(name);
      assert.equal(await inbox.take(), null);
    });
  },

  async error_texts() {
    const connection = await amqplib.connect(url);
    const refused = async (work, expected) => {
      const channel = await connection.createChannel();
      const raised = once(channel, 'error');
      await assert.rejects(work(channel), (error) => error.message.includes(expected));
      const [error] = await raised;
      assert.ok(error.message.includes(expected), error.message);
      return error.code;
    };
    assert.equal(404, await refused(
      (channel) => channel.checkQueue(name),
      `404 (NOT-FOUND) with message "NOT_FOUND - no queue '${name}' in vhost '/'"`));
    assert.equal(404, await refused(
      (channel) => channel.checkExchange(name),
      `NOT_FOUND - no exchange '${name}' in vhost '/'`));
    const channel = await connection.createChannel();
    await channel.assertQueue(name, {durable: false, exclusive: true});
    assert.equal(406, await refused(
      (again) => again.assertQueue(name, {exclusive: true, autoDelete: true, durable: false}),
      '406 (PRECONDITION-FAILED) with message "PRECONDITION_FAILED - inequivalent arg '
      + `'auto_delete' for queue '${name}' in vhost '/': received 'true' but current is 'false'"`));
    assert.equal(403, await refused(
      (again) => again.assertQueue('amq.mine'),
      "403 (ACCESS-REFUSED) with message \"ACCESS_REFUSED - queue name 'amq.mine' contains "
      + "reserved prefix 'amq.*'\""));
    await connection.close();
    await assert.rejects(
      amqplib.connect(url.replace('guest:guest', 'guest:wrong')),
      /403 \(ACCESS-REFUSED\) with message "ACCESS_REFUSED - Login was refused using/);
  },

  callback_interface() {
    return new Promise((resolve, reject) => {
      const step = (next) => (error, value) => {
        if (error) reject(error);
        else next(value);
      };
      callbacks.connect(url, {heartbeat: 5, frameMax: 4096}, step((connection) => {
        connection.createConfirmChannel(step((channel) => {
          channel.assertQueue(name, {exclusive: true}, step(() => {
            channel.sendToQueue(name, Buffer.alloc(10000, 7), {}, step(() => {
              channel.get(name, {}, step((message) => {
                assert.equal(message.content.length, 10000);
                channel.ack(message);
                connection.close(step(resolve));
              }));
            }));
          }));
        }));
      }));
    });
  },

  async recovery() {
    const inbox = new Inbox();
    const connection = await amqplib.connect(url, {
      recovery: {
        initialDelay: 20,
        maxDelay: 200,
        async setup(model) {
          const channel = await model.createConfirmChannel();
          await channel.assertQueue(name, {durable: true});
          await channel.consume(name, (message) => {
            if (message === null) return;
            channel.ack(message);
            inbox.put(message);
          });
          channel.sendToQueue(name, Buffer.from('hello'), {persistent: true});
          await channel.waitForConfirms();
        },
      },
    });
    connection.on('error', () => {});
    assert.equal(text(await inbox.take()), 'hello');
    console.log('restart');
    assert.equal(text(await inbox.take()), 'hello');
    const channel = await connection.createChannel();
    await channel.deleteQueue(name);
    await connection.close();
  },
};

scenarios[scenario]().then(
  () => {
    clearTimeout(deadline);
    console.log('done');
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
