import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createServer, Socket } from 'node:net';
import { bindUdpIn, createNetns, listenTcpIn, openTcpIn, removeNetns } from '../../kernel/netns.ts';
import { writeSysctls } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';
import { canonicalAddress } from '../../lib/address.ts';

export type Place = 'pod1' | 'pod2' | 'pod3' | 'far' | 'node' | 'outside';

const ADDRESSES: Readonly<Record<Place, Readonly<Record<IPFamily, string>>>> = {
  pod1: { ipv4: '10.244.1.11', ipv6: 'fd00:244:1::11' },
  pod2: { ipv4: '10.244.1.12', ipv6: 'fd00:244:1::12' },
  pod3: { ipv4: '10.244.1.13', ipv6: 'fd00:244:1::13' },
  far: { ipv4: '10.244.2.21', ipv6: 'fd00:244:2::21' },
  node: { ipv4: '192.0.2.10', ipv6: 'fd00:2::10' },
  outside: { ipv4: '192.0.2.20', ipv6: 'fd00:2::20' },
};
/** The node's address on its links to pods. */
const GATEWAY = { ipv4: '10.244.1.1', ipv6: 'fd00:244:1::1' } as const;

/** A node with three pods, a pod on another node, and a client outside, all in separate namespaces. */
export interface Topology {
  namespace(place: Place): string;
  address(place: Place, family: IPFamily): string;
  /** Answers on TCP and UDP at `port` with "PLACE CLIENT-ADDRESS", in both families. */
  serve(place: Place, port: number): Promise<void>;
  /**
   * Connects from `place`. Resolves to "PLACE CLIENT-ADDRESS", "refused", or "silence" after `patience`
   * (ms).
   */
  ask(
    place: Place,
    protocol: 'TCP' | 'UDP',
    address: string,
    port: number,
    source?: string,
    patience?: number,
  ): Promise<string>;
  /** Runs lines of `ip -batch` in a place. */
  configure(place: Place, ...lines: string[]): void;
  /** Runs a command in a place and returns its output. */
  run(place: Place, ...command: string[]): string;
  close(): void;
}

/** `patience` if silence is expected: long enough for an answer on an idle machine. */
export const SILENCE_MS = 500;
/** Longer than `SILENCE_MS`, so that one datagram must be dropped there. */
const REPEAT_MS = 1000;
/** Maximum time of an answer on a busy machine. */
export const PATIENCE_MS = 10_000;

/** Runs commands of ip(8) in the namespace of a place. */
type Ip = (place: Place, ...lines: string[]) => void;
type NamespaceOf = (place: Place) => string;

function makePod(ip: Ip, namespace: NamespaceOf, place: 'pod1' | 'pod2' | 'pod3', gatewayLink: string): void {
  const { ipv4, ipv6 } = ADDRESSES[place];
  ip('node', `link add ${gatewayLink} type veth peer name eth0 netns ${namespace(place)}`);
  ip(
    'node',
    `link set ${gatewayLink} up`,
    `addr add ${GATEWAY.ipv4}/32 dev ${gatewayLink}`,
    `addr add ${GATEWAY.ipv6}/128 dev ${gatewayLink} nodad`,
    `route add ${ipv4}/32 dev ${gatewayLink}`,
    `route add ${ipv6}/128 dev ${gatewayLink}`,
  );
  ip(
    place,
    'link set eth0 up',
    `addr add ${ipv4}/32 dev eth0`,
    `addr add ${ipv6}/128 dev eth0 nodad`,
    `route add ${GATEWAY.ipv4}/32 dev eth0`,
    `route add ${GATEWAY.ipv6}/128 dev eth0`,
    `route add default via ${GATEWAY.ipv4} src ${ipv4}`,
    `route add default via ${GATEWAY.ipv6} src ${ipv6}`,
  );
}

/** Makes a link between the node and a neighbour on 192.0.2.0/24: the node is 192.0.2.10 on each. */
function makeNeighbour(
  ip: Ip,
  namespace: NamespaceOf,
  place: 'far' | 'outside',
  link: string,
  last: number,
): void {
  ip('node', `link add ${link} type veth peer name eth0 netns ${namespace(place)}`);
  ip(
    'node',
    `link set ${link} up`,
    `addr add ${ADDRESSES.node.ipv4}/32 dev ${link}`,
    `addr add ${ADDRESSES.node.ipv6}/128 dev ${link} nodad`,
    `route add 192.0.2.${last}/32 dev ${link} src ${ADDRESSES.node.ipv4}`,
    `route add fd00:2::${last}/128 dev ${link} src ${ADDRESSES.node.ipv6}`,
  );
  ip(
    place,
    'link set eth0 up',
    `addr add 192.0.2.${last}/32 dev eth0`,
    `addr add fd00:2::${last}/128 dev eth0 nodad`,
    // The remote pod has an address in addition to that of its node, and must answer from it.
    ...(place === 'far'
      ? [`addr add ${ADDRESSES.far.ipv4}/32 dev lo`, `addr add ${ADDRESSES.far.ipv6}/128 dev lo nodad`]
      : []),
    `route add ${ADDRESSES.node.ipv4}/32 dev eth0 src ${ADDRESSES[place].ipv4}`,
    `route add ${ADDRESSES.node.ipv6}/128 dev eth0 src ${ADDRESSES[place].ipv6}`,
    `route add default via ${ADDRESSES.node.ipv4} src ${ADDRESSES[place].ipv4}`,
    `route add default via ${ADDRESSES.node.ipv6} src ${ADDRESSES[place].ipv6}`,
  );
}

export function createTopology(): Topology {
  const id = randomBytes(3).toString('hex');
  const namespace = (place: Place) => `flt-${id}-${place}`;
  const closers: (() => void)[] = [];
  const places = Object.keys(ADDRESSES) as Place[];
  const ip: Ip = (place, ...lines) =>
    void execFileSync('ip', ['-n', namespace(place), '-batch', '-'], { input: `${lines.join('\n')}\n` });

  const close = () => {
    for (const run of closers.splice(0)) run();
    for (const place of places) removeNetns(namespace(place));
  };

  try {
    for (const place of places) {
      createNetns(namespace(place));
      ip(place, 'link set lo up');
    }
    // Duplicate address detection would delay link-local addresses, and with them neighbours, for a second.
    for (const place of places) {
      writeSysctls(
        { 'net.ipv6.conf.all.accept_dad': 0, 'net.ipv6.conf.default.accept_dad': 0 },
        namespace(place),
      );
    }
    writeSysctls(
      {
        'net.ipv4.ip_forward': 1,
        'net.ipv6.conf.all.forwarding': 1,
        // The tests cause many rejections within a second, and redirects count against the same limit.
        'net.ipv4.icmp_ratelimit': 0,
        'net.ipv6.icmp.ratelimit': 0,
        'net.ipv4.conf.all.send_redirects': 0,
        'net.ipv4.conf.default.send_redirects': 0,
      },
      namespace('node'),
    );
    makePod(ip, namespace, 'pod1', 'v1');
    makePod(ip, namespace, 'pod2', 'v2');
    makePod(ip, namespace, 'pod3', 'v3');
    makeNeighbour(ip, namespace, 'outside', 'eth0', 20);
    makeNeighbour(ip, namespace, 'far', 'eth1', 30);
    const { far } = ADDRESSES;
    ip(
      'node',
      `route add ${far.ipv4}/32 via 192.0.2.30 dev eth1 src ${ADDRESSES.node.ipv4}`,
      `route add ${far.ipv6}/128 via fd00:2::30 dev eth1 src ${ADDRESSES.node.ipv6}`,
      // A default route, as on any node.
      'route add default via 192.0.2.20 dev eth0 src 192.0.2.10',
      'route add default via fd00:2::20 dev eth0 src fd00:2::10',
    );
  } catch (error) {
    close();
    throw error;
  }

  return {
    namespace,
    address: (place, family) => ADDRESSES[place][family],
    async serve(place, port) {
      for (const wildcard of ['0.0.0.0', '::']) {
        const server = createServer((socket) => {
          socket.on('error', () => {});
          socket.end(`${place} ${plain(socket.remoteAddress ?? '')}`);
        });
        server.listen({ fd: listenTcpIn(namespace(place), wildcard, port) });
        const udp = createSocket(wildcard === '::' ? 'udp6' : 'udp4');
        udp.on('message', (_, peer) => udp.send(`${place} ${plain(peer.address)}`, peer.port, peer.address));
        udp.on('error', () => {});
        const fd = bindUdpIn(namespace(place), wildcard, port);
        await new Promise<void>((resolve) => udp.bind({ fd, exclusive: true }, () => resolve()));
        closers.push(
          () => server.close(),
          () => udp.close(),
        );
      }
    },
    ask: (place, protocol, address, port, source, patience = PATIENCE_MS) =>
      protocol === 'TCP'
        ? askTcp(namespace(place), address, port, patience)
        : askUdp(namespace(place), address, port, source, patience),
    configure: ip,
    run: (place, ...command) =>
      execFileSync('ip', ['netns', 'exec', namespace(place), ...command]).toString(),
    close,
  };
}

const plain = (address: string): string => canonicalAddress(address.replace(/%.*/, '')) ?? address;

function askTcp(namespace: string, address: string, port: number, patience: number): Promise<string> {
  return new Promise((resolve) => {
    const fd = openTcpIn(namespace, address.includes(':') ? 'ipv6' : 'ipv4');
    const socket = new Socket({ fd });
    const finish = (answer: string) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(() => finish('silence'), patience);
    let received = '';
    socket.on('data', (chunk) => {
      received += chunk;
    });
    socket.on('end', () => finish(received));
    socket.on('error', (error: NodeJS.ErrnoException) =>
      finish(error.code === 'ECONNREFUSED' ? 'refused' : (error.code ?? 'error')),
    );
    socket.connect(port, address);
  });
}

function askUdp(
  namespace: string,
  address: string,
  port: number,
  source: string | undefined,
  patience: number,
): Promise<string> {
  return new Promise((resolve) => {
    const wildcard = address.includes(':') ? '::' : '0.0.0.0';
    const socket: UdpSocket = createSocket(wildcard === '::' ? 'udp6' : 'udp4');
    const finish = (answer: string) => {
      clearTimeout(timer);
      clearInterval(again);
      socket.close();
      resolve(answer);
    };
    const timer = setTimeout(() => finish('silence'), patience);
    let again: NodeJS.Timeout | undefined;
    // The kernel drops ICMP errors, for example while it sends another one (icmp_xmit_lock): clients repeat datagrams.
    const keepSending = () => {
      socket.send('?');
      again = setInterval(() => socket.send('?'), REPEAT_MS);
    };
    socket.on('message', (bytes) => finish(bytes.toString()));
    socket.on('error', (error: NodeJS.ErrnoException) =>
      finish(error.code === 'ECONNREFUSED' ? 'refused' : (error.code ?? 'error')),
    );
    socket.bind({ fd: bindUdpIn(namespace, source ?? wildcard, 0), exclusive: true }, () =>
      socket.connect(port, address, keepSending),
    );
  });
}
