import type { IcmpError, Packet } from '../kernel/packet.ts';

/** A packet as JSON: its headers, and of its content only a text that was looked for. */
export interface PacketLine extends Omit<Packet, 'payload' | 'icmp'> {
  /** The text, if the packet carries it. */
  readonly text: string | null;
  readonly icmp: (Omit<IcmpError, 'about'> & { readonly about: PacketLine | null }) | null;
}

/** Describes a packet for another machine. `text`: null: nothing of its content. */
export function packetLine(packet: Packet, text: string | null): PacketLine {
  const { payload, icmp, ...headers } = packet;
  const { buffer, byteOffset, length } = payload;
  const carries = text !== null && Buffer.from(buffer, byteOffset, length).includes(text);
  const about = icmp?.about ?? null;
  return {
    ...headers,
    text: carries ? text : null,
    icmp: icmp && { ...icmp, about: about && packetLine(about, text) },
  };
}

/** Reads what packetLine has described. */
export function readPacketLine({ text, icmp, ...headers }: PacketLine): Packet {
  const about = icmp?.about ?? null;
  return {
    ...headers,
    payload: Buffer.from(text ?? ''),
    icmp: icmp && { ...icmp, about: about && readPacketLine(about) },
  };
}
