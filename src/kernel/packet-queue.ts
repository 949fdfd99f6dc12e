import { hasCode } from '../lib/errors.ts';
import { MessageWriter, readAttributes, readBe32 } from './netlink/attributes.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from './netlink/socket.ts';
import type { NetnsRef } from './netns.ts';

// linux/netfilter/nfnetlink.h, nfnetlink_queue.h, netfilter.h
const NFNL_SUBSYS_QUEUE = 3;
export const MESSAGE = { packet: 0, verdict: 1, config: 2, verdictBatch: 3 } as const;
const CONFIG = { command: 1, parameters: 2, maxLength: 3, mask: 4, flags: 5 } as const;
const PACKET = { header: 1, payload: 10 } as const;
const VERDICT_HEADER = 2;
const COMMAND_BIND = 1;
const COPY_META = 1;
const COPY_PACKET = 2;
/** Packets that the device will divide into segments stay whole. */
const FLAG_GSO = 4;
const NF_DROP = 0;
export const NF_ACCEPT = 1;

/** Where the search for a free number starts: other programs use small numbers. */
const FIRST_NUMBER = 64_030;
const LAST_NUMBER = FIRST_NUMBER + 31;
/** More packets than this wait in no listener's backlog either; the kernel drops others, and TCP repeats them. */
const MAX_WAITING = 4096;

export interface PacketQueueOptions {
  readonly netns: NetnsRef | undefined;
  /** How many bytes of a packet are copied, from its IP header on. */
  readonly snapBytes: number;
  /** Returns whether a packet continues; otherwise it is dropped. */
  readonly decide: (packet: Uint8Array) => boolean;
}

/** Packets that rules hand to this process by the queue's number (nfnetlink_queue); the kernel removes it with the process. */
export interface PacketQueue {
  readonly number: number;
  /** Drops packets that wait. */
  close(): void;
}

/** Opens a queue with a free number. Throws FairleadError if the kernel has no queues. */
export function openPacketQueue({ netns, snapBytes, decide }: PacketQueueOptions): PacketQueue {
  const socket = new NetlinkSocket({ protocol: NETLINK_NETFILTER, netns });
  try {
    const number = bindFree(socket, { snapBytes, maxWaiting: MAX_WAITING });
    socket.subscribe(
      [],
      ({ type, payload }) => {
        if (type !== typeOf(MESSAGE.packet)) return;
        const attributes = readAttributes(payload.subarray(HEADER_BYTES));
        const header = attributes.get(PACKET.header);
        if (!header) return;
        let passes = true;
        try {
          passes = decide(attributes.get(PACKET.payload) ?? new Uint8Array(0));
        } finally {
          // A packet without a verdict would occupy the queue until the process ends.
          const message = messageFor(number);
          message.attribute(VERDICT_HEADER, verdict(passes ? NF_ACCEPT : NF_DROP, readBe32(header)));
          socket.post(typeOf(MESSAGE.verdict), message.bytes());
        }
      },
      // The kernel has dropped the packets that did not fit.
      () => {},
    );
    return { number, close: () => socket.close() };
  } catch (error) {
    socket.close();
    throw error;
  }
}

/** Binds a free queue of at most `maxWaiting` packets; without `snapBytes`, no bytes of them are copied. Returns its number. */
export function bindFree(
  socket: NetlinkSocket,
  { snapBytes, maxWaiting }: { readonly snapBytes: number; readonly maxWaiting: number },
): number {
  const copy = snapBytes === 0 ? COPY_META : COPY_PACKET;
  for (let number = FIRST_NUMBER; ; number++) {
    const message = messageFor(number);
    message.attribute(CONFIG.command, Uint8Array.of(COMMAND_BIND, 0, 0, 0));
    message.attribute(
      CONFIG.parameters,
      Uint8Array.of(snapBytes >> 24, snapBytes >> 16, snapBytes >> 8, snapBytes, copy),
    );
    message.attributeBe32(CONFIG.maxLength, maxWaiting);
    if (copy === COPY_META) {
      message.attributeBe32(CONFIG.mask, FLAG_GSO);
      message.attributeBe32(CONFIG.flags, FLAG_GSO);
    }
    try {
      socket.request(typeOf(MESSAGE.config), 0, message.bytes(), `packet queue ${number}`);
      return number;
    } catch (error) {
      // Bound by another socket.
      if (!hasCode(error, 'EPERM', 'EBUSY') || number === LAST_NUMBER) throw error;
    }
  }
}

export const HEADER_BYTES = 4;
export const typeOf = (message: number): number => (NFNL_SUBSYS_QUEUE << 8) | message;

/** Starts a message with its struct nfgenmsg. */
export function messageFor(number: number): MessageWriter {
  const message = new MessageWriter(64);
  message.u8(0).u8(0).be16(number);
  return message;
}

/** struct nfqnl_msg_verdict_hdr. */
export function verdict(code: number, packet: number): Uint8Array {
  const bytes = new Uint8Array(8);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, code);
  view.setUint32(4, packet);
  return bytes;
}
