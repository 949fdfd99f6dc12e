import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError } from '../../lib/errors.ts';
import { errnoError, errnoName, libc, type Poll, systemError } from '../libc.ts';
import { inNetns, type NetnsRef } from '../netns.ts';
import { attachFilter, type FilterInstruction } from '../socket-filter.ts';
import { SOCK_CLOEXEC, SOCK_RAW, SOL_SOCKET } from '../socket-numbers.ts';
import { setSocketOption } from '../socket-option.ts';
import { MessageWriter, readAttributes, readI32, readText, readU16, readU32 } from './attributes.ts';

// linux/netlink.h
export const NETLINK_ROUTE = 0;
export const NETLINK_SOCK_DIAG = 4;
export const NETLINK_NETFILTER = 12;
export const NETLINK_GENERIC = 16;

export const NLM_F_REQUEST = 0x1;
export const NLM_F_ACK = 0x4;
const NLM_F_DUMP_INTR = 0x10;
const NLM_F_ROOT = 0x100;
const NLM_F_MATCH = 0x200;
const NLM_F_DUMP = NLM_F_ROOT | NLM_F_MATCH;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_CAPPED = 0x100;
const NLM_F_ACK_TLVS = 0x200;
const NLMSGERR_ATTR_MSG = 1;
const NLMSGERR_ATTR_OFFS = 2;

const AF_NETLINK = 16;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
const MSG_DONTWAIT = 0x40;
const MSG_TRUNC = 0x20;

const HEADER = 16;
/** How often a dump is repeated after changes interrupted it. */
const DUMP_ATTEMPTS = 20;
/** Longer batches are sent by a thread of libuv's pool, because their commit takes milliseconds. */
const ASYNC_BYTES = 128 * 1024;

/** One message from the kernel. `payload` is a copy, free to keep. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly payload: Uint8Array;
}

/** A message of a batch that the kernel refused. */
export interface NetlinkRefusal {
  readonly sequence: number;
  /** Positive. */
  readonly errno: number;
  /** The kernel's message, if any. */
  readonly text: string | null;
  /** Offset of the offending attribute in the message, if the kernel reports it. */
  readonly offset: number | null;
}

/** The kernel's replies to a request or a batch. */
interface Replies {
  readonly messages: NetlinkMessage[];
  readonly refusals: NetlinkRefusal[];
  /** The objects changed during the dump. */
  readonly interrupted: boolean;
}

export interface NetlinkOptions {
  readonly protocol: number;
  /** The namespace that the socket is opened in and stays in. Default: the namespace of this thread. */
  readonly netns?: NetnsRef | undefined;
  /** Buffer sizes in bytes; may exceed the system's limits (needs CAP_NET_ADMIN). */
  readonly sendBuffer?: number;
  readonly receiveBuffer?: number;
  /** Decides in the kernel which events of a subscription reach this process; runs on whole messages. */
  readonly filter?: readonly FilterInstruction[];
}

const RECEIVE_BYTES = 256 * 1024;
let received: Uint8Array | undefined;
/**
 * Batches that threads of this process send to netfilter. A namespace has one lock for transactions of nf_tables, which closing any
 * socket of netfilter takes, too (nft_rcv_nl_event): behind a large transaction either waits for seconds.
 */
let netfilterBatches = 0;
/** Returns the buffer of all sockets of this thread: most sockets live for one request, and 256 KiB are 64 pages to clear. */
const receiveBuffer = (): Uint8Array => {
  received ??= new Uint8Array(RECEIVE_BYTES);
  return received;
};

/** Returns false if a dump is to be repeated, because objects changed meanwhile. Throws its refusal, or after the last attempt. */
function isWhole({ refusals, interrupted }: Replies, attempt: number, object: string | undefined): boolean {
  const [refusal] = refusals;
  if (refusal && refusal.errno !== EINTR) throw refusalError(refusal, 'netlink dump', object);
  if (!interrupted && !refusal) return true;
  if (attempt < DUMP_ATTEMPTS) return false;
  throw new FairleadError(`the kernel's ${object ?? 'objects'} kept changing while being listed`, {
    op: 'netlink dump',
    code: 'EINTR',
    hint: 'another program on this machine may be changing them continuously',
  });
}

/**
 * A netlink socket. Requests are synchronous: the kernel has queued its replies before send() returns, so a
 * request and its reply take microseconds; only large batches are sent by a thread.
 */
export class NetlinkSocket {
  readonly #fd: number;
  readonly #isNetfilter: boolean;
  #sequence: number;
  #poll: Poll | null = null;
  #read: (max: number) => void = () => {};
  #closed = false;
  /** A thread is sending a batch; its replies would be mixed with those of a request. */
  #sending: Promise<unknown> | null = null;

  constructor(options: NetlinkOptions) {
    this.#isNetfilter = options.protocol === NETLINK_NETFILTER;
    const open = () => libc().socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, options.protocol);
    this.#fd = inNetns(options.netns, open);
    if (this.#fd < 0) throw systemError('open netlink socket', `protocol ${options.protocol}`);
    const address = new Uint8Array(12);
    address[0] = AF_NETLINK;
    if (libc().bind(this.#fd, address, 12) !== 0) {
      const error = systemError('bind netlink socket');
      libc().close(this.#fd);
      throw error;
    }
    const size = 64 * 1024 * 1024;
    this.#option(SOL_SOCKET, SO_SNDBUFFORCE, options.sendBuffer ?? size);
    this.#option(SOL_SOCKET, SO_RCVBUFFORCE, options.receiveBuffer ?? size);
    this.#option(SOL_NETLINK, NETLINK_EXT_ACK, 1);
    this.#option(SOL_NETLINK, NETLINK_CAP_ACK, 1);
    // Lets rtnetlink filter dumps; unknown to kernels before 4.20 and other families.
    this.#option(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);
    this.#sequence = 1;
    if (!options.filter) return;
    try {
      this.setFilter(options.filter);
    } catch (error) {
      libc().close(this.#fd);
      throw error;
    }
  }

  /** Replaces the filter atomically. */
  setFilter(program: readonly FilterInstruction[]): void {
    if (!attachFilter(this.#fd, program)) throw systemError('attach filter to netlink socket');
  }

  /** Returns a new sequence number, for messages of a batch. */
  nextSequence(): number {
    this.#sequence = (this.#sequence % 0x7fffffff) + 1;
    return this.#sequence;
  }

  /**
   * Sends one request and returns the kernel's replies except the acknowledgement. Throws FairleadError
   * (errno name as code) naming `object`.
   */
  request(type: number, flags: number, payload: Uint8Array, object?: string): NetlinkMessage[] {
    const sequence = this.nextSequence();
    this.#send(this.#message(type, flags | NLM_F_REQUEST | NLM_F_ACK, sequence, payload));
    const { messages, refusals } = this.#collect(sequence);
    const [refusal] = refusals;
    if (refusal) throw refusalError(refusal, 'netlink request', object);
    return messages;
  }

  /**
   * Works like `request`, on a thread of libuv's pool, for requests that take the kernel milliseconds.
   * Until the reply arrives, other requests on this socket throw EBUSY, and further calls of this method
   * wait.
   */
  async requestAsync(
    type: number,
    flags: number,
    payload: Uint8Array,
    object?: string,
  ): Promise<NetlinkMessage[]> {
    while (this.#sending) await this.#sending;
    const sequence = this.nextSequence();
    const bytes = this.#message(type, flags | NLM_F_REQUEST | NLM_F_ACK, sequence, payload);
    const { messages, refusals } = await this.#sendByThread(bytes, sequence);
    const [refusal] = refusals;
    if (refusal) throw refusalError(refusal, 'netlink request', object);
    return messages;
  }

  /** Lists all objects of a kind; repeats the request if changes made the result inconsistent. */
  dump(type: number, payload: Uint8Array, object?: string): NetlinkMessage[] {
    for (let attempt = 1; ; attempt++) {
      const sequence = this.nextSequence();
      this.#send(this.#message(type, NLM_F_REQUEST | NLM_F_DUMP, sequence, payload));
      const replies = this.#collect(sequence);
      if (isWhole(replies, attempt, object)) return replies.messages;
    }
  }

  /**
   * Works like `dump`, but the kernel begins on a thread of libuv's pool: for listings that walk a large table to find few objects.
   * Until it has, other requests on this socket throw EBUSY, and further calls of this method wait.
   */
  async dumpAsync(type: number, payload: Uint8Array, object?: string): Promise<NetlinkMessage[]> {
    for (let attempt = 1; ; attempt++) {
      while (this.#sending) await this.#sending;
      const sequence = this.nextSequence();
      const bytes = this.#message(type, NLM_F_REQUEST | NLM_F_DUMP, sequence, payload);
      const replies = await this.#sendByThread(bytes, sequence);
      if (isWhole(replies, attempt, object)) return replies.messages;
    }
  }

  /** Lists the first objects, about `max`, and closes the socket: the kernel holds the rest of the answer. */
  dumpFirst(type: number, payload: Uint8Array, max: number, object?: string): NetlinkMessage[] {
    try {
      const sequence = this.nextSequence();
      this.#send(this.#message(type, NLM_F_REQUEST | NLM_F_DUMP, sequence, payload));
      const { messages, refusals } = this.#collect(sequence, max);
      const [refusal] = refusals;
      if (refusal) throw refusalError(refusal, 'netlink dump', object);
      return messages;
    } finally {
      this.close();
    }
  }

  /**
   * Sends messages that the caller built and returns the refusals. Only the last message has to request an
   * acknowledgement; `last` is its sequence number. `bytes` must not change until then; requests made
   * meanwhile throw EBUSY, batches are queued.
   */
  async batch(bytes: Uint8Array, last: number): Promise<NetlinkRefusal[]> {
    while (this.#sending) await this.#sending;
    if (this.isImmediate(bytes.length)) return this.batchSync(bytes, last);
    return (await this.#sendByThread(bytes, last)).refusals;
  }

  /** Whether `batch` would neither wait nor use a thread for so many bytes, so that `batchSync` does the same. */
  isImmediate(bytes: number): boolean {
    return !this.#sending && bytes <= ASYNC_BYTES && !this.#wouldWait();
  }

  /** Works like `batch`, but synchronously. */
  batchSync(bytes: Uint8Array, last: number): NetlinkRefusal[] {
    this.#send(bytes);
    return this.#collect(last).refusals;
  }

  /**
   * Joins multicast groups. Calls `onMessage` for each event, and `onOverrun` if the kernel dropped events
   * (ENOBUFS): the listener then has to read the complete state. Such a socket cannot be used for requests.
   */
  subscribe(
    groups: readonly number[],
    onMessage: (message: NetlinkMessage) => void,
    onOverrun: () => void,
  ): void {
    for (const group of groups) {
      if (!this.#option(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)) {
        throw systemError('join netlink group', String(group));
      }
    }
    this.#read = (max) => this.#drain(max, onMessage, onOverrun);
    // Bounded, so that a flood of events does not block the event loop, which calls again for the rest.
    this.#poll ??= libc().poll(this.#fd, () => this.#read(64));
  }

  /** Sends a message of a subscribed socket, to which the kernel replies only with an error, as an event. */
  post(type: number, payload: Uint8Array): void {
    this.#send(this.#message(type, NLM_F_REQUEST, this.nextSequence(), payload));
  }

  /** Handles events that have arrived, at most `max`, without waiting for the event loop. */
  readEvents(max: number): void {
    this.#read(max);
  }

  /** Lets the process end while this socket is subscribed. */
  unref(): void {
    this.#poll?.unref();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#poll?.close();
    // The descriptor must not be reused while a thread sends to it.
    if (!this.#sending) this.#release();
  }

  #wouldWait(): boolean {
    return this.#isNetfilter && netfilterBatches > 0;
  }

  #release(): void {
    if (this.#wouldWait()) void libc().closeAsync(this.#fd);
    else libc().close(this.#fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #drain(max: number, onMessage: (message: NetlinkMessage) => void, onOverrun: () => void): void {
    const buffer = receiveBuffer();
    for (let reads = 0; reads < max && !this.#closed; reads++) {
      const length = libc().recv(this.#fd, buffer, buffer.length, MSG_DONTWAIT);
      if (length < 0) {
        const code = errnoName(libc().errno());
        if (code === 'ENOBUFS') {
          onOverrun();
          continue;
        }
        if (code === 'EAGAIN' || code === 'EINTR') return;
        throw systemError('read netlink events');
      }
      // All at once: a handler may read from another socket.
      for (const message of [...parseMessages(buffer.subarray(0, length))]) {
        if (!this.#closed) onMessage(message);
      }
    }
  }

  #message(type: number, flags: number, sequence: number, payload: Uint8Array): Uint8Array {
    const writer = new MessageWriter(HEADER + payload.length + 4);
    const start = writer.beginMessage(type, flags, sequence);
    writer.raw(payload);
    writer.endMessage(start);
    return writer.bytes();
  }

  #send(bytes: Uint8Array): void {
    this.#checkOpen();
    if (this.#sending) {
      throw new FairleadError('the netlink socket is sending a batch', {
        op: 'netlink send',
        code: 'EBUSY',
        hint: 'use a second socket for concurrent requests',
      });
    }
    const sent = libc().send(this.#fd, bytes, bytes.length, 0);
    if (sent !== bytes.length) throw systemError('send netlink message', `${bytes.length} bytes`);
  }

  async #sendByThread(bytes: Uint8Array, last: number): Promise<Replies> {
    this.#checkOpen();
    const sending = libc().sendAsync(this.#fd, bytes, bytes.length, 0);
    this.#sending = sending;
    if (this.#isNetfilter) netfilterBatches++;
    const { result, errno } = await sending;
    if (this.#isNetfilter) netfilterBatches--;
    this.#sending = null;
    try {
      if (result !== bytes.length) throw errnoError(errno, 'send netlink batch', `${bytes.length} bytes`);
      return this.#collect(last);
    } finally {
      if (this.#closed) this.#release();
    }
  }

  #checkOpen(): void {
    if (this.#closed)
      throw new FairleadError('the netlink socket is closed', { op: 'netlink send', code: 'EBADF' });
  }

  /**
   * Reads the kernel's replies. It queues all replies before send() returns (the next part of a dump while
   * the previous one is read), so this never waits; a missing reply means that replies were lost. Stops behind `max` messages.
   */
  #collect(last: number, max = Number.POSITIVE_INFINITY): Replies {
    const messages: NetlinkMessage[] = [];
    const refusals: NetlinkRefusal[] = [];
    let interrupted = false;
    let ended = false;
    const buffer = receiveBuffer();
    for (;;) {
      const length = libc().recv(this.#fd, buffer, buffer.length, MSG_TRUNC | MSG_DONTWAIT);
      if (length < 0) {
        const code = errnoName(libc().errno());
        if (code === 'EAGAIN') break;
        // ENOBUFS: acknowledgements were dropped, but the requests were processed; more may follow.
        if (code === 'EINTR' || code === 'ENOBUFS') continue;
        throw systemError('read netlink reply');
      }
      if (length > buffer.length) throw errnoError(EMSGSIZE, 'read netlink reply', `${length} bytes`);
      for (const message of parseMessages(buffer.subarray(0, length))) {
        interrupted ||= (message.flags & NLM_F_DUMP_INTR) !== 0;
        const errno = endOf(message);
        if (errno === null) {
          messages.push(message);
          continue;
        }
        if (errno !== 0) refusals.push(refusalOf(message, errno));
        if (message.sequence === last) ended = true;
      }
      if (messages.length >= max) return { messages, refusals, interrupted };
    }
    if (!ended && refusals.length === 0) {
      refusals.push({
        sequence: last,
        errno: ENOBUFS,
        text: 'replies were lost: outcome unknown',
        offset: null,
      });
    }
    return { messages, refusals, interrupted };
  }

  #option(level: number, option: number, value: number): boolean {
    return setSocketOption(this.#fd, level, option, value);
  }
}

const EINTR = 4;
const EMSGSIZE = 90;
const ENOBUFS = 105;

/** Splits a datagram into its messages; drops a malformed rest. */
export function* parseMessages(bytes: Uint8Array): Generator<NetlinkMessage> {
  let at = 0;
  while (at + HEADER <= bytes.length) {
    const length = readU32(bytes, at);
    if (length < HEADER || at + length > bytes.length) return;
    yield {
      type: readU16(bytes, at + 4),
      flags: readU16(bytes, at + 6),
      sequence: readU32(bytes, at + 8),
      payload: bytes.slice(at + HEADER, at + length),
    };
    at += (length + 3) & ~3;
  }
}

/** Returns the errno of a message that ends a request (0: success), or null for a reply. */
function endOf(message: NetlinkMessage): number | null {
  if (message.type !== NLMSG_ERROR && message.type !== NLMSG_DONE) return null;
  return message.payload.length >= 4 ? -readI32(message.payload) || 0 : 0;
}

/** Reads struct nlmsgerr and its extended attributes; with NETLINK_CAP_ACK only the failed message's header is repeated. */
function refusalOf(message: NetlinkMessage, errno: number): NetlinkRefusal {
  const { payload, flags } = message;
  if (message.type !== NLMSG_ERROR || !(flags & NLM_F_ACK_TLVS)) {
    return { sequence: message.sequence, errno, text: null, offset: null };
  }
  const echoed = flags & NLM_F_CAPPED ? HEADER : (readU32(payload, 4) + 3) & ~3;
  const attributes = readAttributes(payload.subarray(4 + echoed));
  const text = attributes.get(NLMSGERR_ATTR_MSG);
  const offset = attributes.get(NLMSGERR_ATTR_OFFS);
  return {
    sequence: message.sequence,
    errno,
    text: text ? readText(text) : null,
    offset: offset ? readU32(offset) : null,
  };
}

/** Converts a refusal to an error that names the object. */
export function refusalError(refusal: NetlinkRefusal, op: string, object?: string): FairleadError {
  const code = errnoName(refusal.errno);
  const where = refusal.offset === null ? '' : ` at byte ${refusal.offset}`;
  const what = object === undefined ? op : `${op}: ${object}`;
  return new FairleadError(`${what}: ${code}${refusal.text ? ` (${refusal.text})` : ''}${where}`, {
    op,
    code: errorCode(code),
    ...(object === undefined ? {} : { object }),
  });
}
