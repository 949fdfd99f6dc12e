import { readBe32 } from '../netlink/attributes.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import type { FilterInstruction } from '../socket-filter.ts';
import { CONNTRACK_GROUP, CTA, CTNL_MSG, FLOW_STATUS, NFNL_SUBSYS_CTNETLINK } from './flow.ts';

/** What becomes of TCP connections that are on their way to another address than their client asked for. */
export interface AttemptHandlers {
  /** A first SYN has left. `payload` is the event: `readFlow` reads it. */
  begun(id: number, payload: Uint8Array): void;
  /** A SYN and ACK has come back. */
  answered(id: number): void;
  /** The entry is gone, without any answer but a reset, which ends it at once. */
  ended(id: number): void;
  /** The kernel dropped events: what has become of the attempts is unknown. */
  overrun(): void;
}

export interface AttemptWatch {
  /** Handles events that have come in already, at most so many. */
  readEvents(most: number): void;
  /**
   * From now on, looks only at connections whose client's port has none of these bits: 0 at all, 1 at half of them,
   * 3 at a quarter. What becomes of others that have begun is not told.
   */
  thin(bits: number): void;
  close(): void;
}

/** About 10,000 events. */
const RECEIVE_BUFFER = 16 * 1024 * 1024;
const TCP = 6;
const SYN_SENT = 1;
const SYN_RECV = 2;

/**
 * Watches TCP connections open, by events of connection tracking. A filter in the kernel lets two small messages per
 * connection through, and none of flows that keep the address they were sent to.
 */
export function watchAttempts(handlers: AttemptHandlers, netns?: NetnsRef): AttemptWatch {
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    receiveBuffer: RECEIVE_BUFFER,
    filter: attemptFilter(0),
    ...(netns === undefined ? {} : { netns }),
  });
  socket.subscribe(
    [CONNTRACK_GROUP.new, CONNTRACK_GROUP.update, CONNTRACK_GROUP.destroy],
    ({ type, payload }) => {
      if (type >> 8 !== NFNL_SUBSYS_CTNETLINK) return;
      const id = numberIn(payload, CTA.id);
      if (id === null) return;
      if ((type & 0xff) === CTNL_MSG.delete) handlers.ended(id);
      else if (((numberIn(payload, CTA.status) ?? 0) & FLOW_STATUS.seenReply) !== 0) handlers.answered(id);
      else handlers.begun(id, payload);
    },
    handlers.overrun,
  );
  return {
    readEvents: (most) => socket.readEvents(most),
    thin: (bits) => socket.setFilter(attemptFilter(bits)),
    close: () => socket.close(),
  };
}

/** A 32-bit attribute of an event, found without reading the others. */
function numberIn(payload: Uint8Array, wanted: number): number | null {
  for (let at = 4; at + 8 <= payload.length; ) {
    const length = (payload[at] ?? 0) | ((payload[at + 1] ?? 0) << 8);
    const type = ((payload[at + 2] ?? 0) | ((payload[at + 3] ?? 0) << 8)) & 0x3fff;
    if (type === wanted) return readBe32(payload, at + 4);
    if (length < 4) return null;
    at += (length + 3) & ~3;
  }
  return null;
}

// Where a message of connection tracking has what, from struct nlmsghdr: it always begins with both tuples.
const MESSAGE = 4;
const FLAGS_HIGH = 7;
const CREATED = 0x06;
const FAMILY = 16;
const ATTRIBUTES = 20;
const PLACES = {
  ipv4: { protocol: 52, clientPort: 60, destination: 40, endpoint: 84 },
  // The last words of the addresses: those of pods and of Services differ there all but always.
  ipv6: { protocol: 76, clientPort: 84, destination: 64, endpoint: 120 },
} as const;

// Classic BPF (linux/bpf_common.h, linux/filter.h).
const LOAD = 0x20;
const LOAD_HALF = 0x28;
const LOAD_BYTE = 0x30;
const LOAD_CONSTANT = 0x00;
const LOAD_X_CONSTANT = 0x01;
const LOAD_AT_X = 0x40;
const LOAD_BYTE_AT_X = 0x50;
const LOAD_MEMORY = 0x60;
const STORE = 0x02;
const TO_X = 0x07;
const SUBTRACT_X = 0x1c;
const JUMP = 0x05;
const IF_EQUAL = 0x15;
const IF_BITS = 0x45;
const RETURN = 0x06;
/** SKF_AD_OFF + SKF_AD_NLATTR and SKF_AD_NLATTR_NEST: where the attribute X is, from A on or in the nest at A; or 0. */
const ATTRIBUTE = 0xfffff000 + 12;
const NESTED = 0xfffff000 + 16;

type Step = readonly [code: number, k: number, ifTrue?: string | null, ifFalse?: string] | string;

/** Steps with labels (a text is one) as a program: jumps of classic BPF only lead forward. */
function assemble(steps: readonly Step[]): FilterInstruction[] {
  const labels = new Map<string, number>();
  let count = 0;
  for (const step of steps) {
    if (typeof step === 'string') labels.set(step, count);
    else count++;
  }
  const program: FilterInstruction[] = [];
  for (const step of steps) {
    if (typeof step === 'string') continue;
    const [code, k, ifTrue, ifFalse] = step;
    const distance = (label: string | null | undefined) =>
      label == null ? 0 : (labels.get(label) ?? 0) - program.length - 1;
    program.push(
      code === JUMP ? [code, 0, 0, distance(ifTrue)] : [code, distance(ifTrue), distance(ifFalse), k],
    );
  }
  return program;
}

const addresses = (
  { protocol, clientPort, destination, endpoint }: (typeof PLACES)['ipv4' | 'ipv6'],
  leftOut: number,
): Step[] => [
  [LOAD_BYTE, protocol],
  [IF_EQUAL, TCP, null, 'no'],
  [LOAD_HALF, clientPort],
  [IF_BITS, leftOut, 'no'],
  [LOAD, destination],
  [TO_X, 0],
  [LOAD, endpoint],
  [SUBTRACT_X, 0],
  [STORE, 0],
];

/**
 * Lets through of TCP and of flows whose destination was rewritten (IPVS sets no status bit for that, so the
 * addresses are compared): new ones that begin with a SYN, those that get their SYN and ACK now, and the end of those
 * that never had an answer. Clients' ports with one of the bits `leftOut` are left out.
 */
const attemptFilter = (leftOut: number): readonly FilterInstruction[] =>
  assemble([
    [LOAD_BYTE, FAMILY],
    [IF_EQUAL, 2, null, 'ipv6'],
    ...addresses(PLACES.ipv4, leftOut),
    [JUMP, 0, 'status'],
    'ipv6',
    [IF_EQUAL, 10, null, 'no'],
    ...addresses(PLACES.ipv6, leftOut),
    'status',
    [LOAD_CONSTANT, ATTRIBUTES],
    [LOAD_X_CONSTANT, CTA.status],
    [LOAD, ATTRIBUTE],
    [IF_EQUAL, 0, 'no'],
    [TO_X, 0],
    [LOAD_AT_X, 4],
    [STORE, 1],
    [IF_BITS, FLOW_STATUS.destinationNat, 'translated'],
    [LOAD_MEMORY, 0],
    [IF_EQUAL, 0, 'no'],
    'translated',
    [LOAD_BYTE, MESSAGE],
    [IF_EQUAL, CTNL_MSG.delete, 'unanswered'],
    [LOAD_CONSTANT, ATTRIBUTES],
    [LOAD_X_CONSTANT, CTA.protocolInfo],
    [LOAD, ATTRIBUTE],
    [IF_EQUAL, 0, 'no'],
    [LOAD_X_CONSTANT, 1],
    [LOAD, NESTED],
    [IF_EQUAL, 0, 'no'],
    [LOAD_X_CONSTANT, 1],
    [LOAD, NESTED],
    [IF_EQUAL, 0, 'no'],
    [TO_X, 0],
    [LOAD_BYTE_AT_X, 4],
    [STORE, 0],
    [LOAD_BYTE, FLAGS_HIGH],
    [IF_BITS, CREATED, 'new'],
    [LOAD_MEMORY, 0],
    [IF_EQUAL, SYN_RECV, 'yes', 'no'],
    'new',
    [LOAD_MEMORY, 0],
    [IF_EQUAL, SYN_SENT, 'unanswered', 'no'],
    'unanswered',
    [LOAD_MEMORY, 1],
    [IF_BITS, FLOW_STATUS.seenReply, 'no'],
    'yes',
    [RETURN, 0xffffffff],
    'no',
    [RETURN, 0],
  ]);
