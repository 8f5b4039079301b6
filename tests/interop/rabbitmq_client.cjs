// SPDX-License-Identifier: Apache-2.0
// What we ask of Node's rabbitmq-client, which reconnects by itself: programs.py runs it, and hears what
// became of each scenario.
'use strict';

const assert = require('node:assert/strict');
const {once} = require('node:events');
const readline = require('node:readline');
const {Connection} = require(process.argv[2]);

const patience = setTimeout(() => process.exit(2), 1000 * Number(process.env.BROKER_PATIENCE_S));
const url = process.env.BROKER_URL;
const connection = new Connection({url, retryLow: 20, retryHigh: 200});
connection.on('error', () => {});

// Deliveries of one consumer, to be awaited one by one.
function inbox() {
  const got = [];
  const waiting = [];
  return {
    put: (one) => (waiting.length ? waiting.shift()(one) : got.push(one)),
    take: () => (got.length ? Promise.resolve(got.shift()) : new Promise((resolve) => waiting.push(resolve))),
  };
}

async function consumer(options, handle) {
  const made = connection.createConsumer(options, handle);
  made.on('error', () => {});
  await once(made, 'ready');
  return made;
}

const scenarios = {
  async publish_consume_and_retry(name) {
    const {put, take} = inbox();
    const topic = [{exchange: name, type: 'topic', autoDelete: true}];
    const consuming = await consumer({
      queue: name, queueOptions: {exclusive: true}, exchanges: topic, qos: {prefetchCount: 1},
      queueBindings: [{exchange: name, routingKey: 'users.*'}],
    }, async (message) => {
      put(message);
      if (message.body.id === 1 && !message.redelivered) throw new Error('once more');
    });
    const publisher = connection.createPublisher({confirm: true, exchanges: topic});
    const returned = once(publisher, 'basic.return');
    await publisher.send({exchange: name, routingKey: 'nobody', mandatory: true}, 'lost');
    const [back] = await returned;
    assert.deepEqual([back.replyCode, back.replyText, back.body], [312, 'NO_ROUTE', 'lost']);
    const headers = {n: 1, big: 2 ** 40, ratio: 0.5, yes: true, list: [1, 'two', {deep: null}]};
    for (let id = 0; id < 3; id++) {
      await publisher.send({exchange: name, routingKey: 'users.a', headers, messageId: 'm'}, {id});
    }
    const got = [await take(), await take(), await take(), await take()];
    assert.deepEqual(got.map(({body, redelivered}) => [body.id, redelivered]),
      [[0, false], [1, false], [1, true], [2, false]]);
    assert.deepEqual({...got[0].headers}, headers);
    assert.equal(got[0].messageId, 'm');
    await publisher.close();
    await consuming.close();
  },

  async calls_and_answers(name) {
    const serving = await consumer({queue: name, queueOptions: {exclusive: true}},
      async (asked, reply) => reply(`pong ${asked.body}`));
    const client = connection.createRPCClient({confirm: true});
    const answers = await Promise.all(['a', 'b'].map((text) => client.send(name, text)));
    assert.deepEqual(answers.map(({body}) => body), ['pong a', 'pong b']);
    await client.close();
    await serving.close();
  },

  async nacked_when_full(name) {
    await connection.queueDeclare({queue: name, exclusive: true, arguments: {'x-max-length': 1, 'x-overflow': 'reject-publish'}});
    const publisher = connection.createPublisher({confirm: true, maxAttempts: 1});
    await publisher.send(name, 'first');
    await assert.rejects(publisher.send(name, 'full'), {code: 'NACK'});
    await publisher.close();
  },

  async error_texts(name) {
    await assert.rejects(connection.queueDeclare({queue: name, passive: true}),
      (error) => error.code === 'NOT_FOUND' && error.message.includes(`no queue '${name}' in vhost '/'`));
    await assert.rejects(connection.queueDeclare({queue: 'amq.mine'}),
      (error) => error.code === 'ACCESS_REFUSED' && error.message.includes("reserved prefix 'amq.*'"));
    const other = new Connection({url: url.replace('guest:guest', 'guest:wrong')});
    const [error] = await once(other, 'error');
    assert.equal(error.code, 'ACCESS_REFUSED');
    await other.close();
  },

  async tls() {
    const fs = require('node:fs');
    const [ca, cert, key] = ['CA', 'CERTIFICATE', 'KEY'].map((one) => fs.readFileSync(process.env[`BROKER_${one}`]));
    const other = new Connection({
      url: `amqps://guest:guest@localhost:${process.env.BROKER_TLS_PORT}`, tls: {ca, cert, key},
    });
    assert.equal((await other.queueDeclare({exclusive: true})).messageCount, 0);
    await other.close();
  },

  async consumers_come_back(name) {
    const {put, take} = inbox();
    const consuming = await consumer({queue: name, queueOptions: {durable: true}}, async ({body}) => put(body));
    const publisher = connection.createPublisher({confirm: true, maxAttempts: 100});
    await publisher.send({routingKey: name, durable: true}, 'before');
    assert.equal(await take(), 'before');
    // Not events.once: that is over with an error, as one whose ack comes too late tells.
    const again = new Promise((resolve) => consuming.once('ready', resolve));
    const told = once(readline.createInterface({input: process.stdin}), 'line');
    console.log('{"ask": ["restart"]}');
    await told;
    await again;
    await publisher.send({routingKey: name, durable: true}, 'after');
    let got = await take();
    while (got === 'before') got = await take();  // Its ack may have come too late.
    assert.equal(got, 'after');
    await publisher.close();
    await consuming.close();
    await connection.queueDelete({queue: name});
  },
};

(async () => {
  for (const [scenario, run] of Object.entries(scenarios)) {
    const failure = await run(`node.${scenario}`).then(() => null, (error) => String(error.stack));
    console.log(JSON.stringify({scenario, failure}));
  }
  clearTimeout(patience);
  process.exit(0);
})();
