import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { listenTcpIn, localPort, type NetnsRef, spawnInNetns } from '../../src/kernel/netns.ts';
import { getLink, openRouteSocket } from '../../src/kernel/rtnetlink/links.ts';
import { UPLINK } from '../../src/network/topology.ts';

/** A connection that was opened to a host outside, which answered with the source that it saw. */
export interface EgressAttempt {
  readonly host: string;
  readonly begun: number;
  readonly ended: number;
  readonly error: string | null;
  readonly source: string;
}

/** Opens a new connection to every host repeatedly, regardless of the earlier ones. */
const KEEP_CONNECTING = `
const { connect } = require('node:net');
const [everyMs, patienceMs, port, ...hosts] = process.argv.slice(1);
let pending = 0, ending = false;
const begin = (host) => {
  const begun = Date.now();
  pending++;
  let over = false, source = '';
  const socket = connect({ host, port: Number(port) });
  const end = (error) => {
    if (over) return;
    over = true;
    pending--;
    socket.destroy();
    console.log(JSON.stringify({ host, begun, ended: Date.now(), error, source }));
    if (ending && pending === 0) process.exit(0);
  };
  socket.setTimeout(Number(patienceMs), () => end('no answer'));
  socket.setEncoding('utf8').on('data', (text) => { source += text; }).on('end', () => end(null)).on('error', ({ message }) => end(message));
};
const timer = setInterval(() => hosts.forEach(begin), Number(everyMs));
process.stdin.resume().on('end', () => { ending = true; clearInterval(timer); if (pending === 0) process.exit(0); });
`;

export interface EgressLoad {
  readonly attempts: readonly EgressAttempt[];
  stop(): Promise<readonly EgressAttempt[]>;
}

/** Starts connections from a network namespace; each attempt is given up after ten seconds. */
export function startEgressLoad(
  netns: NetnsRef,
  hosts: readonly string[],
  port: number,
  everyMs: number,
): EgressLoad {
  const words = ['-e', KEEP_CONNECTING, String(everyMs), '10000', String(port), ...hosts];
  const child = spawnInNetns(netns, process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  const attempts: EgressAttempt[] = [];
  if (child.stdout)
    createInterface({ input: child.stdout }).on('line', (line) =>
      attempts.push(JSON.parse(line) as EgressAttempt),
    );
  const ended = once(child, 'close');
  return {
    attempts,
    async stop() {
      child.stdin?.end();
      await ended;
      return attempts;
    },
  };
}

/** Starts a server in a namespace that tells each client the source that it sees, and closes; returns its port. */
export async function sourceServer(netns: NetnsRef): Promise<{ readonly port: number; close(): void }> {
  const first = listenTcpIn(netns, '::', 0);
  const port = localPort(first);
  // A removed network ends no connection.
  const open = new Set<Socket>();
  const servers = [first, listenTcpIn(netns, '0.0.0.0', port)].map((fd) =>
    createServer((socket) => {
      open.add(socket);
      socket.on('error', () => {}).on('close', () => open.delete(socket));
      socket.end(socket.remoteAddress ?? '');
    }).listen({ fd }),
  );
  await Promise.all(servers.map((server) => once(server, 'listening')));
  return {
    port,
    close() {
      for (const server of servers) server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

export interface SourceCapture {
  /** Received packets by source address. */
  readonly sources: ReadonlyMap<string, number>;
  /** Ends the capture; returns how many packets the kernel did not hand over. */
  stop(): Promise<number>;
}

/**
 * Counts all packets to a port of this host by their source, with tcpdump; resolves when it has begun. Those to the MAC of a node
 * that the wire floods, because the node's port is down, are not this host's: the way of packets between nodes.
 */
export async function captureSources(netns: NetnsRef, port: number): Promise<SourceCapture> {
  using socket = openRouteSocket(netns);
  const { mac } = getLink(socket, UPLINK);
  const filter = `ether dst ${mac} and (ip or ip6) and dst port ${port}`;
  const child = spawnInNetns(netns, 'tcpdump', ['-n', '-l', '-q', '-i', UPLINK, '-B', '8192', filter], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const sources = new Map<string, number>();
  if (child.stdout)
    createInterface({ input: child.stdout }).on('line', (line) => {
      const source = / IP6? ([0-9a-f.:]+)\.\d+ > /.exec(line)?.[1];
      if (source !== undefined) sources.set(source, (sources.get(source) ?? 0) + 1);
    });
  let notes = '';
  const begun = Promise.withResolvers<void>();
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    notes += text;
    if (notes.includes('listening on')) begun.resolve();
  });
  const ended = once(child, 'close');
  ended.then(() => begun.reject(new TypeError(`tcpdump ended: ${notes}`)));
  await begun.promise;
  return {
    sources,
    async stop() {
      child.kill('SIGINT');
      await ended;
      return Number(/(\d+) packets? dropped by kernel/.exec(notes)?.[1] ?? 0);
    },
  };
}
