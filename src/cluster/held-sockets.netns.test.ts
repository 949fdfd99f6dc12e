import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { afterEach, beforeEach, test } from 'node:test';
import { libc } from '../kernel/libc.ts';
import { bindUdpIn, createNetns, localPort, removeNetns } from '../kernel/netns.ts';
import { NEW_RECORD, type ProcessRecord } from '../kernel/process-record.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { nodeNetns } from '../network/topology.ts';
import { createHeldSockets, type HeldSockets } from './held-sockets.ts';
import type { ClusterState, NodeState } from './state.ts';

const ADDRESS = '10.96.0.10';
const NODE = { name: 'node-1' } as NodeState;
const RUNNING: ProcessRecord = { ...NEW_RECORD, identity: { pid: 1, startTime: '1' }, startAt: null };

let cluster: ClusterState;
let netns: string;
let clock: ManualClock;
let held: HeldSockets;
let client: Socket;

beforeEach(async () => {
  cluster = {
    name: `flt${randomBytes(3).toString('hex')}`,
    dnsAddresses: [ADDRESS],
  } as unknown as ClusterState;
  netns = nodeNetns(cluster.name, NODE.name);
  createNetns(netns);
  clock = manualClock();
  held = createHeldSockets(clock, silentLogger);
});
afterEach(() => {
  held.close();
  client?.close();
  removeNetns(netns);
});

/** Opens the sockets as for a first agent; the address is added later. */
async function start(): Promise<readonly number[]> {
  const fds = held.of(cluster, NODE);
  held.follow({ [NODE.name]: RUNNING });
  const routes = openRouteSocket(netns);
  const { index } = getLink(routes, 'lo');
  setLink(routes, index, { up: true });
  addAddress(routes, { device: index, address: ADDRESS, prefix: 32 });
  routes.close();
  client = createSocket('udp4');
  client.bind({ fd: bindUdpIn(netns, '127.0.0.1', 0) });
  client.connect(53, ADDRESS);
  await once(client, 'connect');
  return fds;
}

/** Sends a datagram; returns "sent", or the code of the error that the kernel reports. */
async function send(text: string): Promise<string> {
  const failed = once(client, 'error').then(([error]) => String(error.code));
  client.send(text);
  // The kernel reports a rejected datagram at the next operation of the socket.
  const done = new Promise<string>((resolve) => setTimeout(resolve, 50, 'sent'));
  return Promise.race([failed, done]);
}

/** Reads what an agent would read. */
function read(fd: number): string[] {
  const bytes = Buffer.alloc(100);
  const texts: string[] = [];
  for (let length = 0; ; texts.push(bytes.toString('utf8', 0, length))) {
    length = Number(libc().recv(fd, bytes, bytes.length, 0x40));
    if (length < 0) return texts;
  }
}

test('each agent gets the same UDP and TCP socket of the address, which the node has later', async () => {
  const fds = await start();
  assert.deepEqual(fds.map(localPort), [53, 53]);
  held.follow({ [NODE.name]: { ...RUNNING, identity: null, startAt: 200 } });
  assert.deepEqual(held.of(cluster, NODE), fds);
});

test('datagrams wait for the next agent, if it starts soon', async () => {
  const [udp = -1] = await start();
  held.follow({ [NODE.name]: { ...RUNNING, identity: null, startAt: 200 } });
  assert.equal(await send('a'), 'sent');
  clock.advance(2000);
  assert.equal(await send('b'), 'sent');
  held.follow({ [NODE.name]: RUNNING });
  assert.deepEqual(read(udp), ['a', 'b']);
});

test('datagrams that are not read for three seconds pause the socket until they are read', async () => {
  const [udp = -1] = await start();
  assert.equal(await send('a'), 'sent');
  clock.advance(4000);
  assert.equal(await send('b'), 'ECONNREFUSED');
  assert.deepEqual(read(udp), ['a']);
  clock.advance(500);
  assert.equal(await send('c'), 'sent');
  assert.deepEqual(read(udp), ['c']);
});

test('if the next agent starts late, the socket is paused until it runs, and what has arrived is kept', async () => {
  const [udp = -1] = await start();
  assert.equal(await send('a'), 'sent');
  held.follow({ [NODE.name]: { ...RUNNING, identity: null, startAt: 6400 } });
  assert.equal(await send('b'), 'ECONNREFUSED');
  const fds = held.of(cluster, NODE);
  assert.deepEqual([fds.length, fds[0]], [2, udp]);
  held.follow({ [NODE.name]: RUNNING });
  assert.deepEqual(read(udp), ['a']);
  clock.advance(500);
  assert.equal(await send('c'), 'sent');
});

test('the sockets of a node that is removed are closed', async () => {
  await start();
  held.follow({});
  assert.equal(await send('a'), 'ECONNREFUSED');
});
