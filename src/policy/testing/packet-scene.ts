import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, Socket } from 'node:net';
import { setSocketDscp } from '../../kernel/dscp.ts';
import { bindUdpIn, listenTcpIn, type NetnsRef, openTcpIn } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { RowPacket } from '../policy-row.ts';

/** Ports that every pod and place listens on. */
const TCP_PORTS = [80, 81, 82];
const UDP_PORTS = [53, 80];
/** Maximum time after which a packet that must be dropped could still arrive. */
const DROPPED_MS = 400;
/** Maximum time of an expected answer on a busy machine. */
const ANSWERED_MS = 10_000;

/** A sender and receiver of packets: a pod, a node, a host outside. */
export interface Place {
  readonly netns: NetnsRef;
  /** Addresses of IPv4 and of IPv6. */
  readonly ips: readonly string[];
  /** The differentiated services code point of sent packets. Default: 0. */
  readonly dscp?: number;
}

const familyIn = (address: string): IPFamily => (address.includes(':') ? 'ipv6' : 'ipv4');

/** Runs echo servers in all places; the result closes them. */
export async function listenEverywhere(places: Iterable<Place>): Promise<() => void> {
  const closers: (() => void)[] = [];
  for (const { netns, ips } of places) {
    for (const ip of ips) {
      for (const port of TCP_PORTS) {
        const server = createServer((socket) => {
          socket.on('error', () => socket.destroy());
          socket.pipe(socket);
        });
        server.listen({ fd: listenTcpIn(netns, ip, port) });
        await once(server, 'listening');
        closers.push(() => server.close());
      }
      for (const port of UDP_PORTS) {
        const socket = createSocket(ip.includes(':') ? 'udp6' : 'udp4');
        const listening = once(socket, 'listening');
        socket.bind({ fd: bindUdpIn(netns, ip, port) });
        await listening;
        socket.on('message', (data, remote) => socket.send(data, remote.port, remote.address));
        closers.push(() => socket.close());
      }
    }
  }
  return () => {
    for (const close of closers) close();
  };
}

/**
 * Sends the first packet of a flow. Resolves to true if it is answered. `isExpected`: whether an answer is
 * expected, which decides how long to wait. `sourcePort` of UDP: one that no earlier call used, since its
 * flow would still be open.
 */
export function arrives(
  places: ReadonlyMap<string, Place>,
  { from, to, port, protocol }: RowPacket,
  family: 0 | 1,
  sourcePort: number,
  isExpected: boolean,
): Promise<boolean> {
  const waitMs = isExpected ? ANSWERED_MS : DROPPED_MS;
  const [client, server] = [places.get(from), places.get(to)];
  const source = client?.ips[family];
  const destination = server?.ips[family];
  if (!client || source === undefined || destination === undefined)
    throw new Error(`no such place: ${from}, ${to}`);
  return protocol === 'TCP'
    ? connects(client, destination, port, waitMs)
    : answers(client, { source, sourcePort }, destination, port, waitMs);
}

async function connects(client: Place, address: string, port: number, waitMs: number): Promise<boolean> {
  const fd = openTcpIn(client.netns, familyIn(address));
  setSocketDscp(fd, familyIn(address), client.dscp ?? 0);
  const socket = new Socket({ fd });
  socket.connect(port, address);
  try {
    return await Promise.race([
      once(socket, 'connect').then(() => true),
      new Promise<false>((resolve) => setTimeout(() => resolve(false), waitMs).unref()),
    ]);
  } finally {
    socket.on('error', () => {});
    socket.destroy();
  }
}

async function answers(
  client: Place,
  { source, sourcePort }: { readonly source: string; readonly sourcePort: number },
  address: string,
  port: number,
  waitMs: number,
): Promise<boolean> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  const listening = once(socket, 'listening');
  const fd = bindUdpIn(client.netns, source, sourcePort);
  setSocketDscp(fd, familyIn(address), client.dscp ?? 0);
  socket.bind({ fd });
  await listening;
  try {
    const answer = once(socket, 'message').then(() => true);
    socket.send('?', port, address);
    return await Promise.race([
      answer,
      new Promise<false>((resolve) => setTimeout(() => resolve(false), waitMs).unref()),
    ]);
  } finally {
    socket.close();
  }
}

/** Adds routes from a namespace to networks through a node. */
export function routeBy(netns: string, networks: readonly string[], gateways: readonly string[]): void {
  for (const network of networks) {
    const isV6 = network.includes(':');
    const gateway = gateways.find((one) => one.includes(':') === isV6) ?? '';
    execFileSync('ip', ['-n', netns, 'route', 'replace', network, 'via', gateway]);
  }
}
