import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { bindUdpIn, listenTcpIn } from '../kernel/netns.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { relay, reset } from '../lib/relay.ts';
import { nodeNetns } from '../network/topology.ts';

const DNS_PORT = 53;
/** Longer than a node's own timeout, after which it asks the next name server. */
const ANSWER_MS = 5000;
/** Of one node and name server. Further queries are dropped, and repeated by their clients. */
const MAX_QUERIES = 1000;
const MAX_CONNECTIONS = 100;

export interface RelayOptions {
  readonly cluster: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The port of the name servers, on the nodes and here; default: 53. */
  readonly port?: number;
  /** The name server that answers for all of them here; default: each address is that of one. */
  readonly instead?: string | null;
}

/**
 * Name servers on the machine's loopback, such as systemd-resolved at 127.0.0.53, at the same addresses on each node: the
 * DNS servers of the nodes forward to the name servers of the machine's resolv.conf, but have their own loopback.
 */
export interface NameServerRelays {
  /** Relays these addresses on these nodes, and no others. Returns the problem of each that cannot be relayed. */
  update(nodes: readonly string[], addresses: readonly string[]): string[];
  close(): void;
}

export function createNameServerRelays({
  cluster,
  clock,
  logger,
  port = DNS_PORT,
  instead = null,
}: RelayOptions): NameServerRelays {
  const open = new Map<string, { close(): void }>();

  const closeOthers = (wanted: ReadonlySet<string>) => {
    for (const [key, one] of open) {
      if (wanted.has(key)) continue;
      one.close();
      open.delete(key);
    }
  };

  return {
    update(nodes, addresses) {
      const problems: string[] = [];
      const wanted = new Set(nodes.flatMap((node) => addresses.map((address) => `${node} ${address}`)));
      closeOthers(wanted);
      for (const key of wanted) {
        if (open.has(key)) continue;
        const [node = '', address = ''] = key.split(' ');
        try {
          const to = { address: instead ?? address, port };
          open.set(key, startRelay(nodeNetns(cluster, node), { address, port }, to, { clock, logger }));
        } catch (error) {
          problems.push(`the name server ${address} cannot be relayed on ${node}: ${messageOf(error)}`);
        }
      }
      return problems;
    },
    close: () => closeOthers(new Set()),
  };
}

interface NameServer {
  readonly address: string;
  readonly port: number;
}

/** Listens on a node at `own`, and relays to a name server of this process's network. */
function startRelay(
  netns: string,
  own: NameServer,
  server: NameServer,
  { clock, logger }: Pick<RelayOptions, 'clock' | 'logger'>,
): { close(): void } {
  const family = own.address.includes(':') ? 'udp6' : 'udp4';
  const fd = bindUdpIn(netns, own.address, own.port);
  const datagrams = relayDatagrams(createSocket(family), fd, server, clock, logger);
  try {
    const connections = relayConnections(listenTcpIn(netns, own.address, own.port), server, logger);
    return {
      close() {
        datagrams.close();
        connections.close();
      },
    };
  } catch (error) {
    datagrams.close();
    throw error;
  }
}

/** Each query has its own socket, so that its port is random (RFC 5452). */
function relayDatagrams(
  listener: DatagramSocket,
  fd: number,
  server: NameServer,
  clock: Clock,
  logger: Logger,
): { close(): void } {
  const kind = server.address.includes(':') ? 'udp6' : 'udp4';
  const queries = new Set<() => void>();
  let isFull = false;
  listener.on('message', (query, client) => {
    // Cannot be answered, and Node throws when it sends to port 0.
    if (client.port === 0) return;
    if (queries.size >= MAX_QUERIES) {
      if (!isFull) logger.warn({ server: server.address }, 'too many DNS queries wait for the name server');
      isFull = true;
      return;
    }
    isFull = false;
    const socket: DatagramSocket = createSocket(kind);
    const end = () => {
      if (!queries.delete(end)) return;
      cancel();
      socket.close();
    };
    const cancel = clock.after(ANSWER_MS, end);
    queries.add(end);
    // Refused: the client waits for its timeout, as for any lost answer.
    socket.on('error', end);
    socket.on('message', (answer) => {
      // Fails only for this client.
      listener.send(answer, client.port, client.address, () => {});
      end();
    });
    socket.connect(server.port, server.address, () => {
      if (queries.has(end)) socket.send(query, (error) => error && end());
    });
  });
  listener.on('error', (error) => logger.warn({ server: server.address }, `DNS relay: ${error.message}`));
  listener.bind({ fd, exclusive: true });
  return {
    close() {
      listener.close();
      for (const end of queries) end();
    },
  };
}

function relayConnections(fd: number, { address, port }: NameServer, logger: Logger): { close(): void } {
  const clients = new Set<Socket>();
  const listener: Server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    clients.add(client);
    client.on('close', () => clients.delete(client));
    // 'close' follows.
    client.on('error', () => {});
    const server = connect({ port, host: address, allowHalfOpen: true });
    const fail = () => reset(client);
    server.once('error', fail);
    client.once('close', () => {
      if (server.connecting) server.destroy();
    });
    server.once('connect', () => {
      server.off('error', fail);
      relay(client, server, () => {});
    });
  });
  listener.maxConnections = MAX_CONNECTIONS;
  listener.on('error', (error) => logger.warn({ server: address }, `DNS relay: ${error.message}`));
  listener.listen({ fd });
  return {
    close() {
      listener.close();
      for (const client of clients) reset(client);
    },
  };
}
