import { createHash, randomBytes } from 'node:crypto';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server, Socket } from 'node:net';
import {
  bindUdpIn,
  createNetns,
  inNetns,
  listenTcpIn,
  localPort,
  type NetnsRef,
  openTcpIn,
  removeNetns,
} from '../../kernel/netns.ts';
import { createTopology, nodeNetns, removeTopology, type Topology } from '../topology.ts';

/** Helpers for tests of this room: separate clusters and pods, and packets between them. */

const isV6 = (address: string) => address.includes(':');

/** Actions to undo, in reverse order. */
export class Undo {
  readonly #steps: (() => unknown)[] = [];

  add(step: () => unknown): void {
    this.#steps.push(step);
  }

  async run(): Promise<void> {
    for (const step of this.#steps.splice(0).reverse()) await step();
  }
}

/**
 * Creates a wire whose cluster has a random name, with nodes. Node n has 172.30.9.(10+n) and
 * fd00:172:30:9::1n.
 */
export function testTopology(undo: Undo, nodes: number): Topology {
  const topology: Topology = {
    cluster: `flt${randomBytes(3).toString('hex')}`,
    wireCidrs: ['172.30.9.0/24', 'fd00:172:30:9::/64'],
    controlPlaneAddresses: ['172.30.9.1', 'fd00:172:30:9::1'],
    outsideAddresses: ['172.30.9.2', 'fd00:172:30:9::2'],
    nodes: Array.from({ length: nodes }, (_, i) => testNode(i + 1)),
  };
  undo.add(() => removeTopology(topology.cluster));
  createTopology(topology);
  return topology;
}

export function testNode(number: number) {
  return { name: `node-${number}`, addresses: [`172.30.9.1${number}`, `fd00:172:30:9::1${number}`] };
}

/** Returns the pod networks of node n: 10.244.n.0/24 and fd00:10:244:n::/64. */
export function testPodCidrs(number: number): string[] {
  return [`10.244.${number}.0/24`, `fd00:10:244:${number}::/64`];
}

export function testPeer(number: number) {
  return { ...testNode(number), podCidrs: testPodCidrs(number) };
}

export const netnsOf = (topology: Topology, number: number) => nodeNetns(topology.cluster, `node-${number}`);

/** Creates an empty namespace, like a pod's sandbox before it is attached. */
export function sandbox(undo: Undo): string {
  const name = `flt-${randomBytes(4).toString('hex')}`;
  createNetns(name);
  undo.add(() => removeNetns(name));
  return name;
}

/** Starts a TCP server that echoes; `peers` are the addresses that connected, as the server sees them. */
export async function echoServer(undo: Undo, netns: NetnsRef, address: string) {
  const fd = listenTcpIn(netns, address, 0);
  const port = localPort(fd);
  const peers: string[] = [];
  const server: Server = createServer((socket) => {
    peers.push(socket.remoteAddress ?? '');
    // When a network is removed, neither end of a connection is notified.
    undo.add(() => socket.destroy());
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  server.listen({ fd });
  await once(server, 'listening');
  undo.add(() => server.close());
  return { port, peers };
}

/** Connects from a namespace; rejects if that fails. */
export async function connectFrom(
  undo: Undo,
  netns: NetnsRef,
  address: string,
  port: number,
): Promise<Socket> {
  const socket = new Socket({ fd: openTcpIn(netns, isV6(address) ? 'ipv6' : 'ipv4') });
  undo.add(() => socket.destroy());
  socket.connect(port, address);
  await once(socket, 'connect');
  socket.on('error', () => {});
  return socket;
}

/** Sends bytes through an echo server and checks that they come back complete. */
export async function echoBytes(socket: Socket, length: number): Promise<boolean> {
  const sent = randomBytes(length);
  const hash = createHash('sha256');
  let received = 0;
  const done = new Promise<void>((resolve, reject) => {
    const onData = (data: Buffer) => {
      hash.update(data);
      received += data.length;
      if (received < length) return;
      socket.off('data', onData);
      resolve();
    };
    socket.on('data', onData);
    socket.once('close', () => reject(new Error(`closed after ${received} of ${length} bytes`)));
  });
  socket.write(sent);
  await done;
  return received === length && hash.digest('hex') === createHash('sha256').update(sent).digest('hex');
}

/** Sends one datagram from a namespace to another and resolves to its length and source as received. */
export async function datagram(
  undo: Undo,
  from: { netns: NetnsRef; address: string },
  to: { netns: NetnsRef; address: string },
  length: number,
): Promise<{ length: number; source: string }> {
  const type = isV6(to.address) ? 'udp6' : 'udp4';
  const open = async (netns: NetnsRef, address: string): Promise<{ socket: UdpSocket; port: number }> => {
    const fd = bindUdpIn(netns, address, 0);
    const port = localPort(fd);
    const socket = createSocket(type);
    undo.add(() => {
      try {
        socket.close();
      } catch {
        // Closed below.
      }
    });
    // With a descriptor the event is emitted before bind() returns.
    const listening = once(socket, 'listening');
    socket.bind({ fd });
    await listening;
    return { socket, port };
  };
  const receiver = await open(to.netns, to.address);
  const sender = await open(from.netns, from.address);
  const received = once(receiver.socket, 'message');
  sender.socket.send(Buffer.alloc(length, 1), receiver.port, to.address);
  const [data, remote] = (await received) as [Buffer, { address: string }];
  sender.socket.close();
  receiver.socket.close();
  return { length: data.length, source: remote.address };
}

/**
 * Starts a server of datagrams that is bound to no address, so that the kernel chooses the source of its answers; returns
 * its port.
 */
export async function anyAddressServer(
  undo: Undo,
  netns: NetnsRef,
  family: 'ipv4' | 'ipv6',
): Promise<number> {
  const fd = bindUdpIn(netns, family === 'ipv4' ? '0.0.0.0' : '::', 0);
  const port = localPort(fd);
  const server = createSocket(family === 'ipv4' ? 'udp4' : 'udp6');
  undo.add(() => server.close());
  server.on('message', (data, { address, port: from }) => server.send(data, from, address));
  const listening = once(server, 'listening');
  server.bind({ fd });
  await listening;
  return port;
}

/**
 * Asks a server of datagrams, until it answers, and resolves to the source of the answer. The client is not connected, and
 * so receives answers from other addresses, too.
 */
export async function answerSource(
  undo: Undo,
  from: { netns: NetnsRef; address: string },
  address: string,
  port: number,
): Promise<string> {
  const client = createSocket(isV6(address) ? 'udp6' : 'udp4');
  undo.add(() => client.close());
  const listening = once(client, 'listening');
  client.bind({ fd: bindUdpIn(from.netns, from.address, 0) });
  await listening;
  const answered = once(client, 'message');
  client.send('question', port, address);
  const [, remote] = (await answered) as [Buffer, { address: string }];
  return remote.address;
}

/** Returns how many packets a namespace had to fragment, of both families. */
export function fragmentsMade(netns: NetnsRef): number {
  const [snmp, snmp6] = inNetns(netns, () => [
    readFileSync('/proc/thread-self/net/snmp', 'utf8'),
    readFileSync('/proc/thread-self/net/snmp6', 'utf8'),
  ]);
  const [names = [], values = []] = snmp
    .split('\n')
    .filter((line) => line.startsWith('Ip:'))
    .map((line) => line.split(' '));
  const v4 = Number(values[names.indexOf('FragCreates')]);
  const v6 = Number(/^Ip6FragCreates\s+(\d+)/m.exec(snmp6 ?? '')?.[1]);
  return v4 + v6;
}
