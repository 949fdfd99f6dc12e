/**
 * A program for Node.js that sends requests for its standard input's lines until it ends: {id, send: Sending} counts the
 * answers, {id, connect: {host, port}} asks over one connection every 20 ms, {id, stop: true} ends either. It prints lines
 * with the `id`: {answer} of a connection, {failure} as soon as one is met, and finally {counts} or {isClosed}. Requests are as
 * those of `fairlead request` (src/cli/request.ts): each on a new connection, or from a new port.
 */
export const SEND_FOR_LINES = `
const { createSocket } = require('node:dgram');
const { lookup } = require('node:dns/promises');
const { Agent, get } = require('node:http');
const { isIP } = require('node:net');
const { setTimeout: pause } = require('node:timers/promises');
const say = (line) => process.stdout.write(JSON.stringify(line) + '\\n');
const textOf = (error) => error instanceof AggregateError && error.message === '' ? error.errors.map(textOf).join('; ') : error.message;

// Time in which this process stood still does not count: each part of the wait ends late once.
const PARTS = 8;
const afterRunning = (ms, run) => {
  let left = PARTS, timer;
  const next = () => { timer = setTimeout(() => { if (--left > 0) next(); else setImmediate(run); }, ms / PARTS); };
  next();
  return () => { left = Infinity; clearTimeout(timer); };
};
const within = async (ms, waitsFor, ask) => {
  const ended = new AbortController();
  const cancel = afterRunning(ms, () => ended.abort(new Error('no answer within ' + ms + ' ms: ' + waitsFor())));
  try { return await ask(ended.signal); } finally { cancel(); }
};
const askHttp = ({ host, port, path, family, timeout }) => {
  let step = 'the name is not resolved';
  return within(timeout, () => step, (signal) => new Promise((resolve, reject) => {
    const request = get({ host, port, path, agent: new Agent({ keepAlive: false }), family, signal }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk) => { body += chunk; });
      response.on('end', () => resolve(body.trimEnd()));
      response.on('error', reject);
    });
    request.on('socket', (socket) => {
      if (isIP(host)) step = 'not connected';
      socket.on('lookup', (error, found) => { if (!error) step = 'not connected to ' + found; });
      socket.on('connect', () => { step = 'connected to ' + socket.remoteAddress + ', no response'; });
    });
    request.on('error', (error) => reject(signal.aborted ? signal.reason : error));
  }));
};
const askUdp = ({ host, port, family, timeout }) => within(timeout, () => 'nothing from ' + host, async (signal) => {
  const aborted = new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  const address = isIP(host) ? host : (await Promise.race([lookup(host, { family }), aborted])).address;
  const socket = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4');
  try {
    const answer = new Promise((resolve, reject) => {
      socket.on('message', (data) => resolve(data.toString().trimEnd()));
      socket.on('error', reject);
      socket.connect(port, address, () => socket.send('hostname', (error) => { if (error) reject(error); }));
    });
    return await Promise.race([answer, aborted]);
  } finally {
    socket.close();
  }
});

const stops = new Map();
const send = async (id, target) => {
  const ask = target.protocol === 'udp' ? askUdp : askHttp;
  const counts = { count: 0, answers: {}, failures: {} };
  let last = target.isEndless ? Infinity : target.count;
  stops.set(id, () => { last = Math.max(target.count, counts.count + target.afterStop); });
  const begin = Date.now();
  const worker = async () => {
    while (counts.count < last) {
      const number = counts.count++;
      if (target.rate > 0) await pause(begin + number * 1000 / target.rate - Date.now());
      try {
        const answer = await ask(target);
        counts.answers[answer] = (counts.answers[answer] ?? 0) + 1;
      } catch (error) {
        const text = textOf(error);
        counts.failures[text] = (counts.failures[text] ?? 0) + 1;
        if (target.isEndless) say({ id, failure: text });
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(target.concurrency, target.count) }, worker));
  stops.delete(id);
  say({ id, counts });
};

const connect = (id, { host, port }) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  let sockets = 0, isOver = false, timer;
  const end = (line) => { if (!isOver) say({ id, ...line }); isOver = true; clearTimeout(timer); agent.destroy(); stops.delete(id); };
  const create = agent.createConnection;
  agent.createConnection = (...args) => {
    if (++sockets > 1) { end({ failure: 'the connection broke' }); throw new Error('the connection broke'); }
    return create.apply(agent, args);
  };
  stops.set(id, () => end({ isClosed: true }));
  const ask = () => get({ host, port, path: '/hostname', agent }, (response) => {
    let body = '';
    response.on('data', (chunk) => { body += chunk; });
    response.on('end', () => { if (!isOver) { say({ id, answer: body.trim() }); timer = setTimeout(ask, 20); } });
    response.on('error', (error) => end({ failure: error.message }));
  }).on('error', (error) => end({ failure: error.message }));
  ask();
};

require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, send: target, connect: server } = JSON.parse(line);
  if (target) send(id, target);
  else if (server) connect(id, server);
  else stops.get(id)?.();
}).on('close', () => process.exit(0));
`;
