import { ETHERTYPE, type FilterInstruction } from '../kernel/packet-socket.ts';
import { addressBytes, formatAddress } from '../lib/address.ts';
import { BROADCAST, ethernetFrame, type Mac } from './ethernet.ts';

/** An ARP packet for IPv4 over Ethernet (RFC 826). */
export interface ArpPacket {
  readonly operation: 'request' | 'reply';
  readonly senderMac: Mac;
  readonly sender: string;
  readonly targetMac: Mac;
  readonly target: string;
}

const LENGTH = 28;
const OPERATIONS = { request: 1, reply: 2 } as const;
const NO_MAC: Mac = new Uint8Array(6);

/** Passes requests and replies for IPv4 over Ethernet. */
export const ARP_FILTER: readonly FilterInstruction[] = [
  // ldh [14]: hardware type 1; ldh [16]: protocol type IPv4
  [0x28, 0, 0, 14],
  [0x15, 0, 3, 1],
  [0x28, 0, 0, 16],
  [0x15, 0, 1, 0x0800],
  [0x06, 0, 0, 0xffff],
  [0x06, 0, 0, 0],
];

/**
 * Reads an Ethernet frame that contains ARP; returns null if it is malformed, or neither request nor reply.
 */
export function readArp(frame: Uint8Array): ArpPacket | null {
  if (frame.length < 14 + LENGTH) return null;
  const view = new DataView(frame.buffer, frame.byteOffset);
  if (view.getUint16(12) !== ETHERTYPE.arp || view.getUint16(14) !== 1 || view.getUint16(16) !== 0x0800)
    return null;
  if (frame[18] !== 6 || frame[19] !== 4) return null;
  const code = view.getUint16(20);
  if (code !== OPERATIONS.request && code !== OPERATIONS.reply) return null;
  return {
    operation: code === OPERATIONS.request ? 'request' : 'reply',
    senderMac: frame.slice(22, 28),
    sender: formatAddress(frame.subarray(28, 32)),
    targetMac: frame.slice(32, 38),
    target: formatAddress(frame.subarray(38, 42)),
  };
}

/** Returns the frame of an ARP packet from `senderMac`, unicast or broadcast. */
export function arpFrame(to: Mac, packet: ArpPacket): Uint8Array {
  const payload = new Uint8Array(LENGTH);
  payload.set([0, 1, 0x08, 0x00, 6, 4, 0, OPERATIONS[packet.operation]]);
  payload.set(packet.senderMac, 8);
  payload.set(addressBytes(packet.sender) ?? [], 14);
  payload.set(packet.targetMac, 18);
  payload.set(addressBytes(packet.target) ?? [], 24);
  return ethernetFrame(to, packet.senderMac, ETHERTYPE.arp, payload);
}

/** Returns the reply to a request, with the target's `mac`. */
export function arpReply(request: ArpPacket, mac: Mac): Uint8Array {
  return arpFrame(request.senderMac, {
    operation: 'reply',
    senderMac: mac,
    sender: request.target,
    targetMac: request.senderMac,
    target: request.sender,
  });
}

/**
 * Returns gratuitous announcements of `address` at `mac` (RFC 5227, section 3): as a request and as a reply, since some
 * stacks accept only one of them.
 */
export function gratuitousArp(address: string, mac: Mac): Uint8Array[] {
  const packet = { senderMac: mac, sender: address, target: address };
  return [
    arpFrame(BROADCAST, { ...packet, operation: 'request', targetMac: NO_MAC }),
    arpFrame(BROADCAST, { ...packet, operation: 'reply', targetMac: BROADCAST }),
  ];
}
