import { readBe32 } from '../netlink/attributes.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import type { FilterInstruction } from '../socket-filter.ts';
import { CONNTRACK_GROUP, CTA, CTNL_MSG, FLOW_STATUS, NFNL_SUBSYS_CTNETLINK } from './flow.ts';

/** Callbacks for TCP connections whose destination was translated. */
export interface PendingHandlers {
  /** A first SYN was sent. `payload` is the event, for `readFlow`. */
  begun(id: number, payload: Uint8Array): void;
  /** A SYN and ACK has arrived. */
  answered(id: number): void;
  /** The entry was removed without an answer, or by a reset. */
  ended(id: number): void;
  /** The kernel dropped events: the state of pending connections is unknown. */
  overrun(): void;
}

export interface PendingWatch {
  /** Handles events that have arrived, at most `max`. */
  readEvents(max: number): void;
  /**
   * Limits reports from now on to connections whose client port has none of these bits: with 0 all, with 1
   * half of them, with 3 a quarter. Other pending connections are no longer reported.
   */
  sample(bits: number): void;
  close(): void;
}

/** Room for about 10,000 events. */
const RECEIVE_BUFFER = 16 * 1024 * 1024;
const TCP = 6;
const SYN_SENT = 1;
const SYN_RECV = 2;

/**
 * Watches TCP connections while they are being opened, through events of connection tracking. A socket
 * filter passes two small messages per connection, and none for flows whose destination is not translated.
 */
export function watchPendingConnections(handlers: PendingHandlers, netns?: NetnsRef): PendingWatch {
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    receiveBuffer: RECEIVE_BUFFER,
    filter: pendingFilter(0),
    netns,
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
    readEvents: (max) => socket.readEvents(max),
    sample: (bits) => socket.setFilter(pendingFilter(bits)),
    close: () => socket.close(),
  };
}

/** Finds a 32-bit attribute of an event without decoding the others. */
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

// Offsets in a message of connection tracking, from struct nlmsghdr: it always begins with both tuples.
const MESSAGE = 4;
const FLAGS_HIGH = 7;
const CREATED = 0x06;
const FAMILY = 16;
const ATTRIBUTES = 20;
const PLACES = {
  ipv4: { protocol: 52, clientPort: 60, destination: 40, endpoint: 84 },
  // Only the last words of the addresses: practically always, the addresses of pods and Services differ
  // there.
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
/**
 * SKF_AD_OFF + SKF_AD_NLATTR and SKF_AD_NLATTR_NEST: returns the offset of attribute X, searching from A on
 * or nested at A; 0: not found.
 */
const ATTRIBUTE = 0xfffff000 + 12;
const NESTED = 0xfffff000 + 16;

type Step = readonly [code: number, k: number, ifTrue?: string | null, ifFalse?: string] | string;

/** Assembles steps and labels (strings) into a program. Classic BPF jumps only forward. */
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
  excluded: number,
): Step[] => [
  [LOAD_BYTE, protocol],
  [IF_EQUAL, TCP, null, 'no'],
  [LOAD_HALF, clientPort],
  [IF_BITS, excluded, 'no'],
  [LOAD, destination],
  [TO_X, 0],
  [LOAD, endpoint],
  [SUBTRACT_X, 0],
  [STORE, 0],
];

/**
 * Passes events of TCP flows whose destination was translated (IPVS sets no status bit, so addresses are
 * compared): new flows that begin with a SYN, flows that get their SYN-ACK, and the end of unanswered
 * flows. Excludes client ports with one of the bits in `excluded`.
 */
const pendingFilter = (excluded: number): readonly FilterInstruction[] =>
  assemble([
    [LOAD_BYTE, FAMILY],
    [IF_EQUAL, 2, null, 'ipv6'],
    ...addresses(PLACES.ipv4, excluded),
    [JUMP, 0, 'status'],
    'ipv6',
    [IF_EQUAL, 10, null, 'no'],
    ...addresses(PLACES.ipv6, excluded),
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
