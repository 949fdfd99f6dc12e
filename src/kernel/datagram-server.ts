import { addressBytes, formatAddress } from '../lib/address.ts';
import type { FairleadError } from '../lib/errors.ts';
import { pointer } from './bpf/syscall.ts';
import { libc, systemError } from './libc.ts';
import { SOL_SOCKET } from './socket-numbers.ts';
import { setSocketOption } from './socket-option.ts';
import { pauseReception } from './udp-reception.ts';

// asm-generic/socket.h, linux/socket.h
const AF_INET = 2;
const SO_RCVBUF = 8;
const SO_RCVBUFFORCE = 33;
const MSG_TRUNC = 0x20;
const MSG_DONTWAIT = 0x40;

/** Number of datagrams that one system call reads or sends. */
const BATCH = 64;
/** Number of batches read in one turn of the event loop, so that a flood does not block it. */
const BATCHES_PER_TURN = 4;
/** struct sockaddr_in6; sockaddr_in is shorter. */
const ADDRESS_BYTES = 28;

// struct mmsghdr and struct iovec where pointers have 64 bits (linux/socket.h, linux/uio.h)
const MESSAGE = { bytes: 64, name: 0, nameLength: 8, vector: 16, vectorLength: 24, flags: 48, length: 56 };
const VECTOR = { bytes: 16, base: 0, length: 8 };

export interface DatagramServerOptions {
  /** A bound UDP socket; the server takes ownership of it. */
  readonly fd: number;
  /** Maximum length of a datagram; longer ones are dropped. */
  readonly maxRequestBytes: number;
  /** Maximum length of an answer. */
  readonly maxAnswerBytes: number;
  /** Receive buffer in bytes. Without CAP_NET_ADMIN the kernel limits it to net.core.rmem_max. */
  readonly receiveBufferBytes: number;
  /** Decides before anything else whether a datagram is answered; default: all are. `source`: see `answer`. */
  readonly admit?: ((source: string | number) => boolean) | undefined;
  /**
   * Returns the answer; null: none. `request` is reused after the call. `source`: the client's address, see
   * `sourceAddress`. Must not throw or reject.
   */
  readonly answer: (
    request: Buffer,
    source: string | number,
  ) => Uint8Array | null | Promise<Uint8Array | null>;
  /** Reports that reading or sending failed; the server continues. */
  readonly onError: (error: FairleadError) => void;
}

/**
 * Answers datagrams in batches (recvmmsg(2), sendmmsg(2)). Node's sockets make two system calls and several
 * objects for each datagram, which is most of the cost of answering a small request.
 */
export interface DatagramServer {
  /**
   * Ends after all datagrams that have arrived are answered; resolves then. `isKept`: another process has the socket too,
   * and answers the datagrams that have not been read. Otherwise the kernel no longer finds the socket for new datagrams.
   */
  finish(isKept: boolean): Promise<void>;
  /** Ends at once; datagrams that have not been answered are lost. */
  close(): void;
}

export function startDatagramServer(options: DatagramServerOptions): DatagramServer {
  const { fd, maxRequestBytes, answer, onError } = options;
  const size = options.receiveBufferBytes;
  if (!setSocketOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, size))
    setSocketOption(fd, SOL_SOCKET, SO_RCVBUF, size);
  const received = createMessages(maxRequestBytes);
  const answers = createMessages(options.maxAnswerBytes);
  const requests = Array.from({ length: BATCH }, (_, i) =>
    received.data.subarray(i * maxRequestBytes, (i + 1) * maxRequestBytes),
  );
  let queued = 0;
  let awaited = 0;
  let closed = false;
  let lastAnswered = () => {};

  const queue = (data: Uint8Array, address: Buffer, at: number, length: number) => {
    if (data.length > options.maxAnswerBytes) return;
    if (queued === BATCH) flush();
    answers.data.set(data, queued * options.maxAnswerBytes);
    address.copy(answers.addresses, queued * ADDRESS_BYTES, at, at + length);
    answers.headers.setUint32(queued * MESSAGE.bytes + MESSAGE.nameLength, length, true);
    answers.vectors.setUint32(queued * VECTOR.bytes + VECTOR.length, data.length, true);
    queued++;
  };

  const flush = () => {
    for (let from = 0; from < queued; ) {
      const messages = from === 0 ? answers.bytes : answers.bytes.subarray(from * MESSAGE.bytes);
      const sent = libc().sendmmsg(fd, messages, queued - from, MSG_DONTWAIT);
      if (sent > 0) {
        from += sent;
        continue;
      }
      const error = systemError('send an answer');
      if (error.code === 'EINTR') continue;
      onError(error);
      // The first datagram could not be sent, or the buffer is full: clients repeat their requests.
      if (error.code === 'EAGAIN' || error.code === 'EWOULDBLOCK') break;
      from++;
    }
    queued = 0;
  };

  const readBatch = (): number => {
    const count = libc().recvmmsg(fd, received.bytes, BATCH, MSG_DONTWAIT, null);
    if (count < 0) {
      const error = systemError('read datagrams');
      if (error.code !== 'EAGAIN' && error.code !== 'EWOULDBLOCK' && error.code !== 'EINTR') onError(error);
      return 0;
    }
    for (let i = 0; i < count; i++) {
      const header = i * MESSAGE.bytes;
      const at = i * ADDRESS_BYTES;
      const length = received.headers.getUint32(header + MESSAGE.nameLength, true);
      received.headers.setUint32(header + MESSAGE.nameLength, ADDRESS_BYTES, true);
      const truncated = (received.headers.getUint32(header + MESSAGE.flags, true) & MSG_TRUNC) !== 0;
      const slot = requests[i];
      // A datagram from port 0 cannot be answered.
      if (truncated || !slot || (received.addresses[at + 2] === 0 && received.addresses[at + 3] === 0))
        continue;
      const source = sourceOf(received.addresses, at);
      if (options.admit && !options.admit(source)) continue;
      const reply = answer(
        slot.subarray(0, received.headers.getUint32(header + MESSAGE.length, true)),
        source,
      );
      if (reply === null) continue;
      if (!(reply instanceof Promise)) {
        queue(reply, received.addresses, at, length);
        continue;
      }
      const asker = Buffer.from(received.addresses.subarray(at, at + length));
      awaited++;
      reply.then((late) => {
        awaited--;
        if (late !== null && !closed) {
          queue(late, asker, 0, length);
          flush();
        }
        if (awaited === 0) lastAnswered();
      });
    }
    if (queued > 0) flush();
    return count;
  };

  const poll = libc().poll(fd, () => {
    for (let n = 0; n < BATCHES_PER_TURN && !closed; n++) if (readBatch() < BATCH) return;
  });
  let isFinishing = false;
  const stopReading = () => {
    if (!isFinishing) poll.close();
    isFinishing = true;
  };
  const close = () => {
    if (closed) return;
    stopReading();
    closed = true;
    libc().close(fd);
    lastAnswered();
  };
  return {
    async finish(isKept) {
      if (closed || isFinishing) return;
      stopReading();
      if (!isKept) {
        pauseReception(fd);
        // A packet may be between the lookup of its socket and the queue of the socket.
        for (let emptyTurns = 0; emptyTurns < 2 && !closed; ) {
          emptyTurns = readBatch() === 0 ? emptyTurns + 1 : 0;
          await new Promise((resolve) => setImmediate(resolve));
        }
      }
      if (awaited > 0 && !closed) await new Promise<void>((resolve) => (lastAnswered = resolve));
      close();
    },
    close,
  };
}

/** Returns the address of a struct sockaddr as a key that costs little: a number for IPv4, bytes as a string for IPv6. */
const sourceOf = (addresses: Buffer, at: number): string | number =>
  addresses.readUInt16LE(at) === AF_INET
    ? addresses.readUInt32BE(at + 4)
    : addresses.toString('latin1', at + 8, at + 24);

/** Returns the source of an address, as `answer` has it. Throws TypeError if it is not an address. */
export function sourceKey(address: string): string | number {
  const bytes = addressBytes(address);
  if (!bytes) throw new TypeError(`"${address}" is not an address`);
  return bytes.length === 4 ? Buffer.from(bytes).readUInt32BE() : Buffer.from(bytes).toString('latin1');
}

/** Returns the text of a source. */
export const sourceAddress = (source: string | number): string => {
  if (typeof source === 'string') return formatAddress(Buffer.from(source, 'latin1'));
  return formatAddress(
    Uint8Array.of(source >>> 24, (source >>> 16) & 255, (source >>> 8) & 255, source & 255),
  );
};

/** An array of struct mmsghdr, each with room for an address and one buffer. */
function createMessages(dataBytes: number) {
  const bytes = new Uint8Array(BATCH * MESSAGE.bytes);
  const vectorBytes = new Uint8Array(BATCH * VECTOR.bytes);
  const addresses = Buffer.alloc(BATCH * ADDRESS_BYTES);
  const data = Buffer.alloc(BATCH * dataBytes);
  const headers = new DataView(bytes.buffer);
  const vectors = new DataView(vectorBytes.buffer);
  const start = { addresses: pointer(addresses), data: pointer(data), vectors: pointer(vectorBytes) };
  for (let i = 0; i < BATCH; i++) {
    const header = i * MESSAGE.bytes;
    headers.setBigUint64(header + MESSAGE.name, start.addresses + BigInt(i * ADDRESS_BYTES), true);
    headers.setUint32(header + MESSAGE.nameLength, ADDRESS_BYTES, true);
    headers.setBigUint64(header + MESSAGE.vector, start.vectors + BigInt(i * VECTOR.bytes), true);
    headers.setBigUint64(header + MESSAGE.vectorLength, 1n, true);
    vectors.setBigUint64(i * VECTOR.bytes + VECTOR.base, start.data + BigInt(i * dataBytes), true);
    vectors.setBigUint64(i * VECTOR.bytes + VECTOR.length, BigInt(dataBytes), true);
  }
  return { bytes, addresses, data, headers, vectors };
}
