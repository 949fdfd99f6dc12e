import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, Socket } from 'node:net';
import { bindUdpIn, listenTcpIn, openTcpIn } from '../../../kernel/netns.ts';
import type { IPFamily } from '../../../lib/address.ts';
import type { Endpoint, Frontend } from '../../../service/model.ts';
import { endpoint, frontend } from '../../testing/service-map.ts';
import { createTopology, type Place, type Topology } from '../../testing/topology.ts';
import { createUserspace, type UserspaceDataplane } from '../userspace.ts';

export const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const TARGET = 8080;
/** A port without a listener: pods refuse connections. */
const CLOSED = 8099;

export const vip = (family: IPFamily) => (family === 'ipv4' ? '10.96.0.50' : 'fd00:96::50');
export const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export async function readAll(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

type OpenOptions = Partial<Parameters<typeof createUserspace>[0]>;

/** A client that uses one port for all its datagrams. */
export interface DatagramClient {
  /** Resolves to the place that answers, "refused", or "silence". */
  ask(): Promise<string>;
}

/** Proxies of the userspace mode on the node of a topology, and the sockets on both sides of them. */
export interface RelayScene {
  readonly topology: Topology;
  start(): Promise<void>;
  close(): void;
  /** Runs `closer` before the scene is closed. */
  onClose(closer: () => void): void;
  /** Opens a proxy on the node, with deterministic random numbers. */
  open(options?: OpenOptions): UserspaceDataplane;
  /** An endpoint whose packets leave the node and reach no host. */
  silent(family: IPFamily): Endpoint;
  refusing(family: IPFamily): Endpoint;
  living(place: Place, family: IPFamily, port?: number): Endpoint;
  /** The frontends of one Service, at `vip`, port 80, in both families. */
  web(endpoints: (family: IPFamily) => Endpoint[], protocol?: 'TCP' | 'UDP'): Frontend[];
  /** Starts a server in a place; returns its port. */
  serveTcp(place: Place, family: IPFamily, onConnection: (socket: Socket) => void): Promise<number>;
  /** Connects to the Service. */
  connectTcp(from: Place, family: IPFamily): Socket;
  datagramClient(family: IPFamily, from?: Place): Promise<DatagramClient>;
}

export function createRelayScene(): RelayScene {
  let started: Topology | undefined;
  const closers: (() => void)[] = [];
  const topology = () => {
    if (started === undefined) throw new Error('the scene is not started');
    return started;
  };
  return {
    get topology() {
      return topology();
    },
    async start() {
      started = createTopology();
      for (const place of ['pod1', 'pod2'] as const) await started.serve(place, TARGET);
      // Packets to these leave the node and reach no host.
      started.configure(
        'node',
        'route add 10.244.1.99/32 dev v3',
        'neigh add 10.244.1.99 lladdr 02:00:00:00:00:99 dev v3 nud permanent',
        'route add fd00:244:1::99/128 dev v3',
        'neigh add fd00:244:1::99 lladdr 02:00:00:00:00:99 dev v3 nud permanent',
      );
    },
    close() {
      for (const close of closers) close();
      started?.close();
    },
    onClose(closer) {
      closers.push(closer);
    },
    open: (options = {}) =>
      createUserspace({
        families: FAMILIES,
        netns: topology().namespace('node'),
        random: () => 0,
        ...options,
      }),
    silent: (family) => endpoint(family === 'ipv4' ? '10.244.1.99' : 'fd00:244:1::99', TARGET),
    refusing: (family) => endpoint(topology().address('pod3', family), CLOSED),
    living: (place, family, port = TARGET) => endpoint(topology().address(place, family), port),
    web: (endpoints, protocol = 'TCP') =>
      FAMILIES.map((family) =>
        frontend({
          kind: 'ClusterIP',
          service: 'web',
          address: vip(family),
          port: 80,
          protocol,
          endpoints: endpoints(family),
        }),
      ),
    async serveTcp(place, family, onConnection) {
      const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
        socket.on('error', () => {});
        onConnection(socket);
      });
      server.listen({
        fd: listenTcpIn(topology().namespace(place), family === 'ipv4' ? '0.0.0.0' : '::', 0),
        backlog: 4096,
      });
      await once(server, 'listening');
      closers.push(() => server.close());
      return (server.address() as { port: number }).port;
    },
    connectTcp(from, family) {
      const socket = new Socket({
        fd: openTcpIn(topology().namespace(from), family),
        allowHalfOpen: true,
        readable: true,
        writable: true,
      });
      socket.on('error', () => {});
      closers.push(() => socket.destroy());
      return socket.connect(80, vip(family));
    },
    async datagramClient(family, from = 'pod3') {
      const socket = createSocket(family === 'ipv4' ? 'udp4' : 'udp6');
      socket.on('error', () => {});
      const fd = bindUdpIn(topology().namespace(from), family === 'ipv4' ? '0.0.0.0' : '::', 0);
      socket.bind({ fd, exclusive: true });
      // A connected socket ignores replies from any address but the peer's.
      socket.connect(80, vip(family));
      await once(socket, 'connect');
      closers.push(() => socket.close());
      return {
        async ask() {
          const answer = new Promise<string>((resolve) => {
            socket.once('message', (bytes) => resolve(bytes.toString().split(' ')[0] ?? ''));
            socket.once('error', () => resolve('refused'));
          });
          socket.send('?');
          const heard = await Promise.race([answer, pause(500).then(() => 'silence')]);
          socket.removeAllListeners('message');
          return heard;
        },
      };
    },
  };
}
