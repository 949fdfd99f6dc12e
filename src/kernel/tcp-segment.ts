import { addressBytes, type SocketAddress } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { libc, systemError } from './libc.ts';
import { inNetns, type NetnsRef, socketAddress } from './netns.ts';
import { AF_INET, AF_INET6, IPPROTO_RAW, SOCK_CLOEXEC, SOCK_RAW } from './socket-numbers.ts';

/** Packets include their IP header (raw(7), ipv6(7)). */
const TCP = 6;
const SYN_ACK = 0x12;
const HOPS = 64;
const DO_NOT_FRAGMENT = 0x40;

/** A TCP segment with its addresses. */
export interface Segment {
  readonly from: SocketAddress;
  readonly to: SocketAddress;
  readonly sequence: number;
  readonly acknowledgment: number;
  /** The sum of TCP_FLAGs. */
  readonly flags: number;
  readonly window: number;
  /** How many bytes of data it has, all zero. */
  readonly dataBytes: number;
}

/**
 * Sends a SYN-ACK outside of a handshake, from any address. If the peer has such a connection, it answers
 * with an ACK that contains its sequence numbers (RFC 5961, section 4.2) and keeps its state. Connection
 * tracking treats the segment as invalid and makes no entry.
 */
export const sendStraySynAck = (from: SocketAddress, to: SocketAddress, netns?: NetnsRef): void =>
  sendSegment({ from, to, sequence: 0, acknowledgment: 0, flags: SYN_ACK, window: 0, dataBytes: 0 }, netns);

/**
 * Sends one segment that no socket has, from any address; it is not fragmented on its way. Throws FairleadError with the
 * kernel's errno: EMSGSIZE if it is larger than the MTU of the device or of the known path.
 */
export function sendSegment(segment: Segment, netns?: NetnsRef): void {
  const { to } = segment;
  const packet = segmentPacket(segment);
  const v4 = packet[0] === 0x45;
  const open = () => libc().socket(v4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  const fd = inNetns(netns, open);
  if (fd < 0) throw systemError('open raw socket');
  try {
    const address = socketAddress(to.ip, 0);
    const object = `${to.ip} port ${to.port}`;
    if (libc().connect(fd, address, address.length) !== 0) throw systemError('send TCP segment', object);
    if (libc().send(fd, packet, packet.length, 0) < 0) throw systemError('send TCP segment', object);
  } finally {
    libc().close(fd);
  }
}

/** Returns the packet with its IP header; the kernel fills in IPv4's checksum and length. */
function segmentPacket({
  from,
  to,
  sequence,
  acknowledgment,
  flags,
  window,
  dataBytes,
}: Segment): Uint8Array {
  const source = bytesOf(from.ip);
  const destination = bytesOf(to.ip);
  const v4 = source.length === 4;
  const header = v4 ? 20 : 40;
  const packet = new Uint8Array(header + 20 + dataBytes);
  const view = new DataView(packet.buffer);
  if (v4) {
    packet[0] = 0x45;
    view.setUint16(2, packet.length);
    packet[6] = DO_NOT_FRAGMENT;
    packet[8] = HOPS;
    packet[9] = TCP;
  } else {
    packet[0] = 0x60;
    view.setUint16(4, packet.length - header);
    packet[6] = TCP;
    packet[7] = HOPS;
  }
  packet.set(source, v4 ? 12 : 8);
  packet.set(destination, v4 ? 16 : 24);
  view.setUint16(header, from.port);
  view.setUint16(header + 2, to.port);
  view.setUint32(header + 4, sequence);
  view.setUint32(header + 8, acknowledgment);
  packet[header + 12] = 5 << 4;
  packet[header + 13] = flags;
  view.setUint16(header + 14, window);
  view.setUint16(header + 16, tcpChecksum(source, destination, packet.subarray(header)));
  return packet;
}

/** Returns the checksum of the pseudo-header and a segment whose checksum is zero (RFC 9293, section 3.1). */
export function tcpChecksum(source: Uint8Array, destination: Uint8Array, segment: Uint8Array): number {
  let sum = TCP + segment.length;
  for (const part of [source, destination, segment]) {
    for (let i = 0; i < part.length; i += 2) sum += ((part[i] ?? 0) << 8) | (part[i + 1] ?? 0);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

function bytesOf(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (bytes) return bytes;
  throw new FairleadError(`${JSON.stringify(address)} is not an IP address`, {
    op: 'send TCP segment',
    code: 'EINVAL',
  });
}
