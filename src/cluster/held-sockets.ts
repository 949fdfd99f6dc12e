import { closeSync } from 'node:fs';
import { bindUdpIn, listenTcpIn } from '../kernel/netns.ts';
import type { ProcessRecord } from '../kernel/process-record.ts';
import { oldestDatagram, pauseReception, resumeReception } from '../kernel/udp-reception.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { nodeNetns } from '../network/topology.ts';
import type { ClusterState, NodeState } from './state.ts';

const DNS_PORT = 53;
/**
 * Queries wait this long for an agent: longer than its restart takes, and shorter than the timeout of resolvers (5 s).
 * Then other nodes answer, or the kernel rejects them.
 */
const PATIENCE_MS = 3000;
/** If the next agent starts later than this, the queries do not wait. */
const SOON_MS = 1000;
const POLL_MS = 250;

/**
 * The sockets of the nodes' name servers, opened by the supervisor and passed to each agent of a node. While an agent is
 * replaced, or after it was killed, queries wait in them for the next agent. What waits is never dropped: the sockets
 * only stop receiving, for an agent that does not start soon or does not read.
 */
export interface HeldSockets {
  /** Returns the descriptors for a node's next agent; none if they cannot be opened: then the agent reports the reason. */
  of(state: ClusterState, node: NodeState): readonly number[];
  /** Follows the processes: called after each change of the records. */
  follow(records: Readonly<Record<string, ProcessRecord>>): void;
  close(): void;
}

interface HeldNode {
  readonly netns: string;
  readonly addresses: readonly string[];
  readonly udp: readonly number[];
  /** Empty while reception is paused: a listening socket cannot be paused, and clients connect again. */
  tcp: readonly number[];
  /** The oldest datagram of each UDP socket, and since when it has been the oldest. */
  readonly oldest: Map<number, { readonly text: string; readonly since: number }>;
  isAgentRunning: boolean;
  isPaused: boolean;
}

export function createHeldSockets(clock: Clock, logger: Logger): HeldSockets {
  const held = new Map<string, HeldNode>();

  function release(name: string, node: HeldNode): void {
    held.delete(name);
    for (const fd of [...node.udp, ...node.tcp]) closeSync(fd);
  }

  /** Pauses sockets that no agent reads, and resumes them when all that waited has been read. */
  function poll(): void {
    cancel = clock.after(POLL_MS, poll);
    for (const node of held.values()) {
      const waits = node.udp.map((fd) => waitOf(node, fd, clock.now()));
      if (Math.max(...waits) >= PATIENCE_MS) pause(node);
      else if (node.isPaused && node.isAgentRunning && Math.max(...waits) === 0) resume(node);
    }
  }
  let cancel = clock.after(POLL_MS, poll);

  return {
    of(state, { name }) {
      try {
        const node = held.get(name) ?? hold(nodeNetns(state.name, name), state.dnsAddresses);
        held.set(name, node);
        if (node.tcp.length === 0) node.tcp = openTcp(node);
        return [...node.udp, ...node.tcp];
      } catch (error) {
        logger.debug({ node: name }, `DNS sockets are not held: ${messageOf(error)}`);
        return [];
      }
    },
    follow(records) {
      for (const [name, node] of held) {
        const record = records[name];
        if (!record) {
          release(name, node);
          continue;
        }
        node.isAgentRunning = record.identity !== null;
        if (record.startAt !== null && record.startAt - clock.now() > SOON_MS) pause(node);
      }
    },
    close() {
      cancel();
      for (const [name, node] of held) release(name, node);
    },
  };
}

function pause(node: HeldNode): void {
  if (node.isPaused) return;
  node.isPaused = true;
  for (const fd of node.udp) pauseReception(fd);
  if (node.isAgentRunning) return;
  for (const fd of node.tcp) closeSync(fd);
  node.tcp = [];
}

function resume(node: HeldNode): void {
  node.isPaused = false;
  for (const fd of node.udp) resumeReception(fd);
}

/** Returns how long the oldest datagram of a socket has been waiting; 0: there is none. */
function waitOf(node: HeldNode, fd: number, now: number): number {
  const bytes = oldestDatagram(fd);
  const text = bytes === null ? null : Buffer.from(bytes).toString('latin1');
  const before = node.oldest.get(fd);
  if (text === null) node.oldest.delete(fd);
  else if (before?.text !== text) node.oldest.set(fd, { text, since: now });
  return text === null ? 0 : Math.max(1, now - (before?.text === text ? before.since : now));
}

/** Opens the sockets of addresses that the agent adds to the node later. */
function hold(netns: string, addresses: readonly string[]): HeldNode {
  const udp = openAll(addresses, (address) => bindUdpIn(netns, address, DNS_PORT, { mayBeAbsent: true }));
  const state = { oldest: new Map(), isAgentRunning: false, isPaused: false };
  return { netns, addresses, udp, tcp: [], ...state };
}

const openTcp = ({ netns, addresses }: HeldNode): number[] =>
  openAll(addresses, (address) => listenTcpIn(netns, address, DNS_PORT, { mayBeAbsent: true }));

function openAll(addresses: readonly string[], open: (address: string) => number): number[] {
  const fds: number[] = [];
  try {
    for (const address of addresses) fds.push(open(address));
    return fds;
  } catch (error) {
    for (const fd of fds) closeSync(fd);
    throw error;
  }
}
