// SPDX-License-Identifier: Apache-2.0
// Calls functions of the npm clients of RabbitMQ's HTTP API. Its arguments are the folder of the
// modules, the port, and names: JSON with a vhost, queue, exchange, user, node, channel, connection
// and other, a second connection.
// It prints what each call answers as a line of JSON: {"call": name, "error": text or null, "value"}.
'use strict';
const path = require('path');
const [folder, port, told] = process.argv.slice(2);
const names = JSON.parse(told);
const module_ = (name) => require(path.join(folder, name));
const { vhost, queue, exchange, user, node, connection, channel, other } = names;

async function call(name, work) {
  try {
    const value = await work();
    console.log(JSON.stringify({ call: name, error: null, value: value === undefined ? null : value }));
  } catch (error) {
    console.log(JSON.stringify({ call: name, error: String(error.message || error), value: null }));
  }
}

// --- rabbitmq-stats: waits for a challenge, and asks with the media type JSON ---------------------
async function rabbitmqStats() {
  const client = module_('rabbitmq-stats')(`http://127.0.0.1:${port}`, 'guest', 'guest');
  const calls = {
    getOverview: [], getNodes: [], getNode: [node], getConnections: [], getConnection: [connection],
    getConnectionChannels: [connection], getChannels: [], getChannel: [channel],
    getConsumers: [], getVhostConsumers: [vhost], getExchanges: [], getVhostExchanges: [vhost],
    getVhostExchange: [vhost, exchange], getQueues: [], getVhostQueues: [vhost], getVhostQueue: [vhost, queue],
    putVhostExchange: [vhost, 'of stats', { type: 'topic', durable: true }],
    putVhostQueue: [vhost, 'of stats', { durable: true, arguments: { 'x-max-length': 5 } }],
    deleteVhostQueueContents: [vhost, 'of stats'], deleteVhostQueue: [vhost, 'of stats'],
    deleteVhostExchange: [vhost, 'of stats'], getExtensions: [], getBindings: [], getVhostBindings: [vhost],
    putVhost: ['of stats', {}], getVhosts: [], getVhost: ['of stats'],
    putUser: ['of stats', { password: 'a-long-password', tags: 'monitoring' }], getUsers: [], getUser: ['of stats'],
    setUserPermissions: ['of stats', 'of stats', { configure: '.*', write: '.*', read: '' }],
    getUserPermissions: ['of stats'], deleteUser: ['of stats'], deleteVhost: ['of stats'], getPolicies: [],
    getCurrentUser: [], whoAmI: [], deleteConnection: [other],
  };
  const more = Object.keys(client).filter((name) => !(name in calls));
  await call('rabbitmq-stats has', async () => more);
  for (const [name, given] of Object.entries(calls)) {
    await call(`rabbitmq-stats ${name}`, async () => {
      const answer = await client[name](...given);
      return typeof answer === 'string' && answer ? JSON.parse(answer) : answer;
    });
  }
}

// --- amqp-stats: paths with a slash at the end, credentials in the address ------------------------
async function amqpStats() {
  const Client = module_('amqp-stats');
  const client = new Client({ hostname: `127.0.0.1:${port}` });
  const calls = {
    overview: [], nodes: [], getNode: [node], extensions: [], definitions: [], connections: [],
    getConnection: [connection], channels: [], getChannel: [channel], exchanges: [],
    getExchangesForVHost: [vhost], getExchange: [vhost, exchange], getBindingsWithSource: [vhost, exchange],
    getBindingsWithDestination: [vhost, exchange], queues: [], getQueuesForVHost: [vhost],
    getQueue: [vhost, queue], getBindingsForQueue: [vhost, queue], bindings: [], getBindingsForVHost: [vhost],
    vhosts: [], getVHost: [vhost], getVHostPermissions: [vhost], users: [], getUser: [user],
    getUserPermissions: [user], whoami: [], permissions: [], getPermissionsForUserOnVHost: [vhost, user],
    alive: [vhost],
  };
  for (const [name, given] of Object.entries(calls)) {
    await call(`amqp-stats ${name}`, () => new Promise((resolve, reject) => {
      client[name](...given, (error, _, data) => (error ? reject(error) : resolve(data)));
    }));
  }
}

// --- http-rabbitmq-manager: reads and writes ------------------------------------------------------
async function manager() {
  const client = module_('http-rabbitmq-manager').client({ host: '127.0.0.1', port });
  const of = { vhost, queue: 'of manager', exchange: 'of manager' };
  const calls = [
    ['overview'], ['setClusterName', { name: 'mill' }], ['getClusterName'], ['listNodes'],
    ['getNode', { name: node, memory: true }], ['listExtensions'], ['listDefinitions'], ['listConnections'],
    ['getConnection', { connection }], ['listChannels', { vhost }], ['listChannels', { connection }],
    ['getChannel', { channel }], ['listConsumers', { vhost }], ['createExchange', { ...of, type: 'topic' }],
    ['listExchanges', { vhost }], ['getExchange', of], ['getBindingsForSource', of],
    ['getBindingsForDestination', of], ['createQueue', { ...of, durable: true, arguments: {} }],
    ['listQueues', { vhost }], ['getQueue', of], ['getQueueBindings', of],
    ['setQueueActions', { ...of, action: 'sync' }],
    ['getMessages', { vhost, queue, count: 5, requeue: true, encoding: 'auto', truncate: 50 }],
    ['purgeQueue', of], ['deleteQueue', of], ['deleteExchange', of], ['listBindings', { vhost }],
    ['createVhost', { vhost: 'of manager' }], ['listVhosts', {}], ['getVhostPermissions', { vhost }],
    ['deleteVhost', { vhost: 'of manager' }], ['setDefinitions', { definition: '{}' }],
    ['closeConnection', { connection }],
  ];
  for (const [name, given] of calls) {
    await call(`http-rabbitmq-manager ${name}`, () => new Promise((resolve, reject) => {
      const done = (error, data) => (error ? reject(error) : resolve(data));
      given === undefined ? client[name](done) : client[name](given, done);
    }));
  }
}

rabbitmqStats().then(amqpStats).then(manager);
