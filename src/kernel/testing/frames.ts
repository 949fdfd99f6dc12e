import { addressBytes } from '../../lib/address.ts';
import { IP_PROTOCOL, TCP_FLAG } from '../packet.ts';

/** Addresses and ports of a packet: "10.0.0.1:1000 > 10.0.0.2:80", "[fd00::1]:1 > [fd00::2]:80". */
type Way = string;

const FLAGS = {
  SYN: TCP_FLAG.syn,
  'SYN-ACK': TCP_FLAG.syn | TCP_FLAG.ack,
  RST: TCP_FLAG.rst | TCP_FLAG.ack,
  ACK: TCP_FLAG.ack,
} as const;

export interface TcpOptions {
  readonly flags?: keyof typeof FLAGS;
  readonly sequence?: number;
  readonly acknowledgment?: number;
  /** Of the timestamps option; without one the segment has no options. */
  readonly timestamp?: number;
}

export function tcpFrame(
  way: Way,
  { flags = 'SYN', sequence = 0, acknowledgment = 0, timestamp }: TcpOptions = {},
) {
  const { source, destination } = endsOf(way);
  const segment = new Uint8Array(timestamp === undefined ? 20 : 32);
  const view = new DataView(segment.buffer);
  view.setUint16(0, source.port);
  view.setUint16(2, destination.port);
  view.setUint32(4, sequence);
  view.setUint32(8, acknowledgment);
  segment[12] = (segment.length / 4) << 4;
  segment[13] = FLAGS[flags];
  if (timestamp !== undefined) {
    segment.set([1, 1, 8, 10], 20);
    view.setUint32(24, timestamp);
  }
  return ethernet(ipPacket(source.ip, destination.ip, IP_PROTOCOL.tcp, segment));
}

export function udpFrame(way: Way, payload: Uint8Array | string = '') {
  const { source, destination } = endsOf(way);
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const datagram = new Uint8Array(8 + bytes.length);
  const view = new DataView(datagram.buffer);
  view.setUint16(0, source.port);
  view.setUint16(2, destination.port);
  view.setUint16(4, datagram.length);
  datagram.set(bytes, 8);
  return ethernet(ipPacket(source.ip, destination.ip, IP_PROTOCOL.udp, datagram));
}

/** An ICMP error about a frame, of which 28 bytes of the packet are repeated (RFC 792), or all with IPv6. */
export function icmpErrorFrame(from: string, to: string, type: number, code: number, about: Uint8Array) {
  const isV6 = from.includes(':');
  const repeated = about.subarray(14, isV6 ? undefined : 14 + 28);
  const message = Uint8Array.of(type, code, 0, 0, 0, 0, 0, 0, ...repeated);
  return ethernet(ipPacket(from, to, isV6 ? IP_PROTOCOL.icmp6 : IP_PROTOCOL.icmp, message));
}

/** A frame inside VXLAN. */
export function vxlanFrame(from: string, to: string, port: number, inner: Uint8Array) {
  const ends = [from, to].map((ip) => (ip.includes(':') ? `[${ip}]` : ip));
  return udpFrame(`${ends[0]}:40000 > ${ends[1]}:${port}`, Uint8Array.of(8, 0, 0, 0, 0, 0, 1, 0, ...inner));
}

function endsOf(way: Way) {
  const [source, destination] = way.split(' > ').map((text) => {
    const match = /^\[?([^\]]*?)\]?:([0-9]+)$/.exec(text);
    return { ip: match?.[1] ?? '', port: Number(match?.[2]) };
  });
  if (!source || !destination) throw new Error(`cannot be read: ${way}`);
  return { source, destination };
}

function ipPacket(from: string, to: string, protocol: number, payload: Uint8Array): Uint8Array {
  const source = addressBytes(from) ?? new Uint8Array(4);
  const destination = addressBytes(to) ?? new Uint8Array(4);
  const isV6 = source.length === 16;
  const packet = new Uint8Array((isV6 ? 40 : 20) + payload.length);
  const view = new DataView(packet.buffer);
  packet[0] = isV6 ? 0x60 : 0x45;
  packet[isV6 ? 6 : 9] = protocol;
  view.setUint16(isV6 ? 4 : 2, isV6 ? payload.length : packet.length);
  packet.set(source, isV6 ? 8 : 12);
  packet.set(destination, isV6 ? 24 : 16);
  packet.set(payload, isV6 ? 40 : 20);
  return packet;
}

function ethernet(packet: Uint8Array): Uint8Array {
  const frame = new Uint8Array(14 + packet.length);
  frame.set((packet[0] ?? 0) >> 4 === 6 ? [0x86, 0xdd] : [0x08, 0x00], 12);
  frame.set(packet, 14);
  return frame;
}
