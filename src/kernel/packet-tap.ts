import type { FairleadError } from '../lib/errors.ts';
import { pointer } from './bpf/syscall.ts';
import { errnoError, libc, systemError } from './libc.ts';
import { bindUdpIn, inNetns, localPort, type NetnsRef, socketAddress } from './netns.ts';
import { attachFilter, type FilterInstruction } from './socket-filter.ts';
import { SOCK_CLOEXEC, SOCK_RAW, SOL_SOCKET } from './socket-numbers.ts';
import { setSocketOption } from './socket-option.ts';

// linux/socket.h, linux/if_packet.h, linux/if_ether.h, asm-generic/socket.h
const AF_PACKET = 17;
const SOCK_NONBLOCK = 0o4000;
const ETH_P_ALL = 3;
const SO_RCVBUFFORCE = 33;
const SO_TIMESTAMPNS = 35;
const SOL_PACKET = 263;
const PACKET_STATISTICS = 6;
const PACKET_OTHERHOST = 3;
const PACKET_OUTGOING = 4;
const MSG_TRUNC = 0x20;
const MSG_DONTWAIT = 0x40;

/** How many frames one system call reads. */
const BATCH = 64;
/** How many batches are read in one turn of the event loop, so that a flood does not block it. */
const BATCHES_PER_TURN = 8;
const RECEIVE_BUFFER_BYTES = 16 << 20;
/** struct sockaddr_ll. */
const ADDRESS_BYTES = 20;
/** struct cmsghdr and struct timespec. */
const CONTROL_BYTES = 32;
// struct mmsghdr and struct iovec where pointers have 64 bits (linux/socket.h, linux/uio.h)
const MESSAGE = {
  ...{ bytes: 64, name: 0, nameLength: 8, vector: 16, vectorLength: 24 },
  ...{ control: 32, controlLength: 40, flags: 48, length: 56 },
};
const VECTOR = { bytes: 16, base: 0, length: 8 };

/** A frame as one device passed it. */
export interface TappedFrame {
  /** From its Ethernet header; at most `snapBytes`. Free to keep. */
  readonly data: Uint8Array;
  /** Its length on the device. */
  readonly length: number;
  /** Index of the device in the tap's namespace. */
  readonly device: number;
  readonly direction: 'in' | 'out';
  /** Received, but addressed to another MAC address: normal on a bridge's port, else flooded by a switch. */
  readonly isForOther: boolean;
  /** Nanoseconds since 1970, by the kernel's clock. */
  readonly timeNs: bigint;
}

export interface PacketTapOptions {
  readonly netns: NetnsRef;
  /** Runs in the kernel on whole Ethernet frames; those for which it returns 0 are not copied. Null: all frames. */
  readonly filter: readonly FilterInstruction[] | null;
  /** How many bytes of a frame are kept. */
  readonly snapBytes: number;
  readonly onFrame: (frame: TappedFrame) => void;
  readonly onError: (error: FairleadError) => void;
}

/**
 * The frames of all devices of a network namespace (packet(7)), each once for every device that it passes, in this order.
 * The kernel removes it with the process.
 */
export interface PacketTap {
  /** Reads the frames that have arrived and were not read yet; otherwise they are read when the event loop is idle. */
  drain(): void;
  /** Replaces the filter. Throws FairleadError. */
  setFilter(filter: readonly FilterInstruction[]): void;
  /** Returns how many frames the kernel has dropped since the previous call, because the buffer was full. */
  dropped(): number;
  close(): void;
}

/** Taps that were opened while the kernel stamps packets. */
export interface PacketTaps {
  /** Opens a tap; needs CAP_NET_RAW. Throws FairleadError. */
  open(options: PacketTapOptions): PacketTap;
  /** Closes all taps. */
  close(): void;
}

/**
 * Prepares taps: resolves when the kernel stamps packets as they pass, so that the taps opened from then on show the order
 * in which packets passed. Throws FairleadError.
 */
export async function preparePacketTaps(sleep: (ms: number) => Promise<void>): Promise<PacketTaps> {
  const timestamps = await enablePacketTimestamps(sleep);
  const taps: PacketTap[] = [];
  let closed = false;
  return {
    open(options) {
      const tap = openPacketTap(options);
      taps.push(tap);
      return tap;
    },
    close() {
      if (closed) return;
      closed = true;
      for (const tap of taps) tap.close();
      timestamps.close();
    },
  };
}

function openPacketTap({ netns, filter, snapBytes, onFrame, onError }: PacketTapOptions): PacketTap {
  // Protocol 0: nothing is received before the filter is set and bind() is called.
  const fd = inNetns(netns, () => libc().socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd < 0) throw systemError('open packet socket');
  // If the kernel refuses the size, the default remains; dropped() then shows whether it was too small.
  setSocketOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES);
  if (
    (filter && !attachFilter(fd, filter)) ||
    !setSocketOption(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1) ||
    libc().bind(fd, everyDevice(), ADDRESS_BYTES) !== 0
  ) {
    const errno = libc().errno();
    libc().close(fd);
    throw errnoError(errno, 'bind packet socket');
  }
  const messages = createMessages(snapBytes);
  let closed = false;

  const readBatch = (): number => {
    const count = libc().recvmmsg(fd, messages.bytes, BATCH, MSG_DONTWAIT | MSG_TRUNC, null);
    if (count < 0) {
      const error = systemError('read packet socket');
      if (error.code !== 'EAGAIN' && error.code !== 'EWOULDBLOCK' && error.code !== 'EINTR') onError(error);
      return 0;
    }
    for (let i = 0; i < count; i++) onFrame(messages.read(i));
    return count;
  };
  const poll = libc().poll(fd, () => {
    for (let n = 0; n < BATCHES_PER_TURN && !closed; n++) if (readBatch() < BATCH) return;
  });
  return {
    drain() {
      while (!closed && readBatch() === BATCH);
    },
    setFilter(program) {
      if (!closed && !attachFilter(fd, program)) throw systemError('filter packet socket');
    },
    dropped() {
      // struct tpacket_stats; reading it sets it to zero.
      const value = new Uint8Array(8);
      if (libc().getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, value, u32(8)) !== 0)
        throw systemError('read statistics of packet socket');
      return new DataView(value.buffer).getUint32(4, true);
    },
    close() {
      if (closed) return;
      closed = true;
      poll.close();
      libc().close(fd);
    },
  };
}

const STAMP_GAP_MS = 2;
const MIN_STAMP_GAP_NS = 1_000_000n;

/**
 * Makes the kernel stamp packets when they pass, not when they are read, and resolves when it does: after the first socket
 * has asked for it, a kernel thread switches this on a little later (net_enable_timestamp() in net/core/dev.c). Two
 * datagrams on loopback, sent one after the other and read together, show it by their stamps. Gives up after `maxTries` ×
 * 2 ms: frames may then be in the wrong order. The kernel stops when the result and the last tap are closed. Throws
 * FairleadError.
 */
async function enablePacketTimestamps(
  sleep: (ms: number) => Promise<void>,
  maxTries = 500,
): Promise<{ close(): void }> {
  const fd = bindUdpIn(null, '127.0.0.1', 0);
  const close = () => libc().close(fd);
  try {
    const address = socketAddress('127.0.0.1', localPort(fd));
    if (
      !setSocketOption(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1) ||
      libc().connect(fd, address, address.length) !== 0
    ) {
      throw systemError('open socket for timestamps');
    }
    const messages = createMessages(1);
    const send = () => {
      if (libc().send(fd, Uint8Array.of(0), 1, 0) < 0) throw systemError('send to loopback');
    };
    for (let tries = 0; tries < maxTries; tries++) {
      send();
      await sleep(STAMP_GAP_MS);
      send();
      const count = libc().recvmmsg(fd, messages.bytes, BATCH, MSG_DONTWAIT | MSG_TRUNC, null);
      const stamps = Array.from({ length: Math.max(0, count) }, (_, i) => messages.read(i).timeNs);
      const [first, second] = stamps;
      if (first !== undefined && second !== undefined && second - first >= MIN_STAMP_GAP_NS) break;
    }
  } catch (error) {
    close();
    throw error;
  }
  return { close };
}

/** An array of struct mmsghdr, each with room for an address, a timestamp and one frame. */
function createMessages(snapBytes: number) {
  const bytes = new Uint8Array(BATCH * MESSAGE.bytes);
  const vectorBytes = new Uint8Array(BATCH * VECTOR.bytes);
  const addressBytes = new Uint8Array(BATCH * ADDRESS_BYTES);
  const controlBytes = new Uint8Array(BATCH * CONTROL_BYTES);
  const data = new Uint8Array(BATCH * snapBytes);
  const headers = new DataView(bytes.buffer);
  const vectors = new DataView(vectorBytes.buffer);
  const addresses = new DataView(addressBytes.buffer);
  const controls = new DataView(controlBytes.buffer);
  const start = {
    addresses: pointer(addressBytes),
    controls: pointer(controlBytes),
    data: pointer(data),
    vectors: pointer(vectorBytes),
  };
  const prepare = (i: number) => {
    const header = i * MESSAGE.bytes;
    headers.setUint32(header + MESSAGE.nameLength, ADDRESS_BYTES, true);
    headers.setBigUint64(header + MESSAGE.controlLength, BigInt(CONTROL_BYTES), true);
  };
  for (let i = 0; i < BATCH; i++) {
    const header = i * MESSAGE.bytes;
    headers.setBigUint64(header + MESSAGE.name, start.addresses + BigInt(i * ADDRESS_BYTES), true);
    headers.setBigUint64(header + MESSAGE.vector, start.vectors + BigInt(i * VECTOR.bytes), true);
    headers.setBigUint64(header + MESSAGE.vectorLength, 1n, true);
    headers.setBigUint64(header + MESSAGE.control, start.controls + BigInt(i * CONTROL_BYTES), true);
    vectors.setBigUint64(i * VECTOR.bytes + VECTOR.base, start.data + BigInt(i * snapBytes), true);
    vectors.setBigUint64(i * VECTOR.bytes + VECTOR.length, BigInt(snapBytes), true);
    prepare(i);
  }
  return {
    bytes,
    /** Takes frame i, and prepares its place for the next call. */
    read(i: number): TappedFrame {
      const length = headers.getUint32(i * MESSAGE.bytes + MESSAGE.length, true);
      const type = addresses.getUint8(i * ADDRESS_BYTES + 10);
      const seconds = controls.getBigInt64(i * CONTROL_BYTES + 16, true);
      const nanoseconds = controls.getBigInt64(i * CONTROL_BYTES + 24, true);
      prepare(i);
      return {
        data: data.slice(i * snapBytes, i * snapBytes + Math.min(length, snapBytes)),
        length,
        device: addresses.getInt32(i * ADDRESS_BYTES + 4, true),
        direction: type === PACKET_OUTGOING ? 'out' : 'in',
        isForOther: type === PACKET_OTHERHOST,
        timeNs: seconds * 1_000_000_000n + nanoseconds,
      };
    },
    /** `bytes` has only their addresses: this keeps them. */
    kept: [vectorBytes, addressBytes, controlBytes, data],
  };
}

function everyDevice(): Uint8Array {
  // struct sockaddr_ll: family, protocol (network order), index 0: every device.
  const address = new Uint8Array(ADDRESS_BYTES);
  const view = new DataView(address.buffer);
  view.setUint16(0, AF_PACKET, true);
  view.setUint16(2, ETH_P_ALL);
  return address;
}

const u32 = (value: number) => new Uint8Array(new Uint32Array([value]).buffer);
