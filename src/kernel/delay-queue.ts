import type { Clock } from '../lib/clock.ts';
import { readAttributes, readBe32 } from './netlink/attributes.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from './netlink/socket.ts';
import type { NetnsRef } from './netns.ts';
import { bindFree, HEADER_BYTES, MESSAGE, messageFor, NF_ACCEPT, typeOf, verdict } from './packet-queue.ts';

const PACKET_HEADER = 1;
const VERDICT_HEADER = 2;
/** Packets that wait for their delay; the kernel drops others, as a full link does. */
const MAX_DELAYED = 10_000;

const CLOSING_ROUNDS = 4;

export interface DelayQueueOptions {
  readonly netns: NetnsRef | undefined;
  readonly delayMs: number;
  readonly clock: Clock;
}

/** Packets that rules hand to this process, which holds each for the same time; the kernel removes the queue with it. */
export interface DelayQueue {
  readonly number: number;
  /** Lets the packets that wait continue. */
  close(): void;
}

/** Opens a queue whose packets continue unchanged after `delayMs`. Throws FairleadError if the kernel has no queues. */
export function openDelayQueue({ netns, delayMs, clock }: DelayQueueOptions): DelayQueue {
  const socket = new NetlinkSocket({ protocol: NETLINK_NETFILTER, netns });
  const waiting: { readonly id: number; readonly until: number }[] = [];
  let first = 0;
  let cancel: (() => void) | null = null;
  let number = 0;
  let isClosing = false;
  /** Accepts all packets up to this one: all have the same delay, so that they continue in their order. */
  const accept = (id: number) => {
    const message = messageFor(number);
    message.attribute(VERDICT_HEADER, verdict(NF_ACCEPT, id));
    socket.post(typeOf(MESSAGE.verdictBatch), message.bytes());
  };
  const release = () => {
    cancel = null;
    const now = clock.now();
    let last: number | null = null;
    for (let next = waiting[first]; next && next.until <= now; next = waiting[++first]) last = next.id;
    if (last !== null) accept(last);
    if (first > MAX_DELAYED || first === waiting.length) {
      waiting.splice(0, first);
      first = 0;
    }
    schedule();
  };
  const schedule = () => {
    const next = waiting[first];
    if (next && !cancel && !isClosing) cancel = clock.after(Math.max(1, next.until - clock.now()), release);
  };
  try {
    number = bindFree(socket, { snapBytes: 0, maxWaiting: MAX_DELAYED });
    socket.subscribe(
      [],
      ({ type, payload }) => {
        if (type !== typeOf(MESSAGE.packet)) return;
        const header = readAttributes(payload.subarray(HEADER_BYTES)).get(PACKET_HEADER);
        if (!header) return;
        // The clock counts whole milliseconds: one more, so that no packet is early.
        waiting.push({ id: readBe32(header), until: clock.now() + delayMs + 1 });
        schedule();
      },
      // The kernel has dropped the packets that did not fit.
      () => {},
    );
  } catch (error) {
    socket.close();
    throw error;
  }
  return {
    number,
    close() {
      isClosing = true;
      cancel?.();
      // A packet that continues may come to a second rule with this queue.
      for (let round = 0; round < CLOSING_ROUNDS; round++) {
        const last = waiting.at(-1);
        waiting.length = 0;
        if (last) accept(last.id);
        socket.readEvents(MAX_DELAYED);
      }
      socket.close();
    },
  };
}
