import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { bindUdpIn, listenTcpIn, type NetnsRef } from '../kernel/netns.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { nameServerOfNode, openDnsFallback, removeDnsFallback } from './dns-fallback.ts';
import { NodeNetwork } from './node-network.ts';
import { openPodNetwork } from './pod-network.ts';
import {
  connectFrom,
  netnsOf,
  sandbox,
  testNode,
  testPeer,
  testPodCidrs,
  testTopology,
  Undo,
} from './testing/packets.ts';
import type { Topology } from './topology.ts';

const NODES = [1, 2, 3];
/** A query without an answer for this time is lost. */
const LOST_MS = 20_000;
const CLUSTER = { ipv4: '10.96.0.10', ipv6: 'fd00:10:96::a' } as const;
type Family = keyof typeof CLUSTER;
const gateway = (number: number, family: Family) =>
  family === 'ipv4' ? `10.244.${number}.1` : `fd00:10:244:${number}::1`;
const gateways = (numbers: readonly number[]) =>
  numbers.flatMap((number) => [gateway(number, 'ipv4'), gateway(number, 'ipv6')]);

let undo: Undo;
let topology: Topology;
/** Connects a pod to the first node, and returns its addresses. */
let attach: (name: string, pod: NetnsRef) => Promise<readonly string[]>;
let pod: NetnsRef;

beforeEach(async () => {
  undo = new Undo();
  topology = testTopology(undo, NODES.length);
  for (const number of NODES) {
    const netns = netnsOf(topology, number);
    const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
    undo.add(() => rmSync(stateDir, { recursive: true, force: true }));
    const network = new NodeNetwork({
      ...testNode(number),
      node: `node-${number}`,
      podCidrs: testPodCidrs(number),
      overlay: 'vxlan',
      netns,
    });
    undo.add(() => network.close());
    network.syncRoutes(NODES.map(testPeer));
    const pods = openPodNetwork({ network, stateDir });
    undo.add(() => pods.close());
    const routes = openRouteSocket(netns);
    for (const [address, prefix] of [
      [CLUSTER.ipv4, 32],
      [CLUSTER.ipv6, 128],
    ] as const)
      addAddress(routes, { device: getLink(routes, 'lo').index, address, prefix });
    routes.close();
    if (number !== 1) continue;
    attach = async (name, netns) =>
      (await pods.attach({ uid: name, namespace: 'default', name, hostPorts: [] }, netns)).ips;
    pod = sandbox(undo);
    await attach('asker', pod);
  }
});
afterEach(() => undo.run());

/** Programs a node's rules: it passes queries on to these nodes. */
function program(number: number, others: readonly number[]): void {
  const fallback = openDnsFallback({ netns: netnsOf(topology, number) });
  undo.add(() => fallback.close());
  fallback.write({
    cluster: Object.values(CLUSTER),
    own: gateways([number]),
    others: gateways(others).map(nameServerOfNode),
    next: gateways(others),
  });
}

/** Starts name servers of a node, which answer with the node's number; returns a function that stops them. */
const serve = (number: number) =>
  answer(netnsOf(topology, number), [...Object.values(CLUSTER), ...gateways([number])], 53, String(number));

/** Starts name servers that answer with this text; returns a function that stops them. */
async function answer(
  netns: NetnsRef,
  addresses: readonly string[],
  serverPort: number,
  words: string,
): Promise<() => void> {
  const sockets: { close(): unknown }[] = [];
  for (const address of addresses) {
    const udp = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    udp.bind({ fd: bindUdpIn(netns, address, serverPort) });
    udp.on('message', (_, { port, address: asker }) => udp.send(words, port, asker));
    const tcp = createServer((socket) => void socket.end(words));
    tcp.listen({ fd: listenTcpIn(netns, address, serverPort) });
    await once(tcp, 'listening');
    sockets.push(udp, tcp);
  }
  let isOpen = true;
  const stop = () => {
    if (isOpen) for (const socket of sockets) socket.close();
    isOpen = false;
  };
  undo.add(stop);
  return stop;
}

/** Returns a function that sends a query, always from the same port, and returns the number of the node that answers. */
async function client(family: Family): Promise<() => Promise<string>> {
  const socket: Socket = createSocket(family === 'ipv4' ? 'udp4' : 'udp6');
  undo.add(() => socket.close());
  const bound = once(socket, 'listening');
  socket.bind({ fd: bindUdpIn(pod, family === 'ipv4' ? '0.0.0.0' : '::', 5000) });
  await bound;
  const connected = once(socket, 'connect');
  socket.connect(53, CLUSTER[family]);
  await connected;
  return async () => {
    const answer = once(socket, 'message', { signal: AbortSignal.timeout(LOST_MS) }).then(
      ([data]) => String(data),
      (error) => String(error.code),
    );
    socket.send('who');
    return answer;
  };
}

describe('queries of pods while no process of their node has a socket for them', () => {
  for (const family of ['ipv4', 'ipv6'] as const) {
    test(`${family}: a client with one port is answered by another node, and by its own as soon as that answers`, async () => {
      program(1, [2]);
      const stop = await serve(1);
      await serve(2);
      const ask = await client(family);
      assert.equal(await ask(), '1');
      stop();
      assert.deepEqual([await ask(), await ask()], ['2', '2']);
      const stopAgain = await serve(1);
      assert.deepEqual([await ask(), await ask()], ['1', '1']);
      stopAgain();
      assert.equal(await ask(), '2');
    });

    test(`${family}: a node whose agent is down too passes queries on`, async () => {
      program(1, [2]);
      program(2, [3]);
      await serve(3);
      const ask = await client(family);
      assert.deepEqual([await ask(), await ask()], ['3', '3']);
    });

    test(`${family}: while no node answers, queries are rejected after a few hops`, async () => {
      program(1, [2]);
      program(2, [1]);
      const ask = await client(family);
      assert.equal(await ask(), 'ECONNREFUSED');
    });

    test(`${family}: TCP connections are opened to another node`, async () => {
      program(1, [2]);
      await serve(2);
      assert.equal(await text(await connectFrom(undo, pod, CLUSTER[family], 53)), '2');
      await serve(1);
      assert.equal(await text(await connectFrom(undo, pod, CLUSTER[family], 53)), '1');
    });
  }

  // Without br_netfilter, answers from pod to pod on one bridge do not pass the rules of the node.
  for (const family of ['ipv4', 'ipv6'] as const) {
    test(`${family}: a pod of the same node answers on its own port, until a process of the node does`, async () => {
      const server = sandbox(undo);
      const addresses = await attach('server', server);
      const fallback = openDnsFallback({ netns: netnsOf(topology, 1) });
      undo.add(() => fallback.close());
      fallback.write({
        cluster: Object.values(CLUSTER),
        own: [],
        others: addresses.map((address) => ({ address, ports: { UDP: 1053, TCP: 1053 }, isHere: true })),
        next: [],
      });
      await answer(server, addresses, 1053, 'pod');
      const ask = await client(family);
      assert.equal(await ask(), 'pod');
      assert.equal(await text(await connectFrom(undo, pod, CLUSTER[family], 53)), 'pod');
      await serve(1);
      assert.equal(await ask(), '1');
    });
  }

  test('the kernel returns the rules as they were written, and keeps them when their agent ends', async () => {
    program(1, [2]);
    const own = openDnsFallback({ netns: netnsOf(topology, 3) });
    own.write({
      cluster: Object.values(CLUSTER),
      own: gateways([3]),
      others: gateways([2]).map(nameServerOfNode),
      next: [],
    });
    assert.deepEqual(await own.check(), []);
    own.close();
    const next = openDnsFallback({ netns: netnsOf(topology, 3) });
    undo.add(() => next.close());
    next.write({ cluster: Object.values(CLUSTER), own: gateways([3]), others: [], next: [] });
    assert.deepEqual(await next.check(), []);
  });

  test('removed rules leave queries to the node', async () => {
    const fallback = openDnsFallback({ netns: netnsOf(topology, 1) });
    fallback.write({
      cluster: Object.values(CLUSTER),
      own: [],
      others: gateways([2]).map(nameServerOfNode),
      next: [],
    });
    fallback.close();
    await serve(2);
    const ask = await client('ipv4');
    assert.equal(await ask(), '2');
    removeDnsFallback(netnsOf(topology, 1));
    assert.equal(await ask(), 'ECONNREFUSED');
  });
});
