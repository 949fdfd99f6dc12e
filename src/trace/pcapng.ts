import { addressBytes } from '../lib/address.ts';

/** Writes blocks of pcapng (draft-ietf-opsawg-pcapng), little-endian. Pure: each function returns the bytes of one block. */

const BLOCK = { section: 0x0a0d0d0a, interface: 1, names: 4, packet: 6 } as const;
const BYTE_ORDER_MAGIC = 0x1a2b3c4d;
const LINKTYPE_ETHERNET = 1;
/** if_tsresol: timestamps in units of 10^-9 seconds. */
const NANOSECONDS = 9;
const OPTION = {
  end: 0,
  comment: 1,
  application: 4,
  interfaceName: 2,
  interfaceDescription: 3,
  interfaceResolution: 9,
  packetFlags: 2,
} as const;
const NAME_RECORD = { end: 0, ipv4: 1, ipv6: 2 } as const;
/** Bits 0 and 1 of epb_flags. */
const DIRECTION = { in: 1, out: 2 } as const;
/** Lengths of options and records have 16 bits. */
const MAX_TEXT_BYTES = 65535;

type OptionValue = readonly [code: number, value: Uint8Array];

/** Renders the block that begins a file. */
export function sectionHeader(application: string): Uint8Array {
  const body = new Uint8Array(16);
  const view = new DataView(body.buffer);
  view.setUint32(0, BYTE_ORDER_MAGIC, true);
  view.setUint16(4, 1, true);
  // The section's length is not given.
  view.setBigInt64(8, -1n, true);
  return block(BLOCK.section, [body, options([[OPTION.application, textBytes(application)]])]);
}

/** Renders the description of an Ethernet device. The blocks are counted from 0: their numbers are `PacketRecord.device`. */
export function interfaceDescription(name: string, description: string, snapBytes: number): Uint8Array {
  const body = new Uint8Array(8);
  const view = new DataView(body.buffer);
  view.setUint16(0, LINKTYPE_ETHERNET, true);
  view.setUint32(4, snapBytes, true);
  return block(BLOCK.interface, [
    body,
    options([
      [OPTION.interfaceName, textBytes(name)],
      [OPTION.interfaceDescription, textBytes(description)],
      [OPTION.interfaceResolution, Uint8Array.of(NANOSECONDS)],
    ]),
  ]);
}

/** Renders names of addresses. Texts that are not addresses are left out. */
export function nameResolution(names: Iterable<readonly [address: string, name: string]>): Uint8Array {
  const records: Uint8Array[] = [];
  for (const [address, name] of names) {
    const bytes = addressBytes(address);
    if (!bytes) continue;
    const value = Buffer.concat([bytes, textBytes(name).subarray(0, MAX_TEXT_BYTES - 17), Uint8Array.of(0)]);
    records.push(record(bytes.length === 4 ? NAME_RECORD.ipv4 : NAME_RECORD.ipv6, value));
  }
  return block(BLOCK.names, [...records, record(NAME_RECORD.end, new Uint8Array(0))]);
}

export interface PacketRecord {
  readonly device: number;
  /** Nanoseconds since 1970. */
  readonly timeNs: bigint;
  readonly data: Uint8Array;
  /** The frame's length on the device. */
  readonly length: number;
  readonly direction: 'in' | 'out';
  /** Null: none. */
  readonly comment: string | null;
}

/** Renders a frame. */
export function enhancedPacket({
  device,
  timeNs,
  data,
  length,
  direction,
  comment,
}: PacketRecord): Uint8Array {
  const head = new Uint8Array(20);
  const view = new DataView(head.buffer);
  view.setUint32(0, device, true);
  view.setUint32(4, Number((timeNs >> 32n) & 0xffffffffn), true);
  view.setUint32(8, Number(timeNs & 0xffffffffn), true);
  view.setUint32(12, data.length, true);
  view.setUint32(16, length, true);
  const flags: OptionValue = [OPTION.packetFlags, Uint8Array.of(DIRECTION[direction], 0, 0, 0)];
  const described: OptionValue[] = comment === null ? [] : [[OPTION.comment, textBytes(comment)]];
  return block(BLOCK.packet, [head, padded(data), options([...described, flags])]);
}

/** A block: type, total length, body, total length. The parts of the body are multiples of four bytes. */
function block(type: number, parts: readonly Uint8Array[]): Uint8Array {
  const total = 12 + parts.reduce((sum, part) => sum + part.length, 0);
  const bytes = new Uint8Array(total);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, type, true);
  view.setUint32(4, total, true);
  let at = 8;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  view.setUint32(at, total, true);
  return bytes;
}

function options(values: readonly OptionValue[]): Uint8Array {
  return Buffer.concat([
    ...values.map(([code, value]) => record(code, value)),
    record(OPTION.end, new Uint8Array(0)),
  ]);
}

/** An option or a name record: code, length without padding, value, padding. */
function record(code: number, value: Uint8Array): Uint8Array {
  const head = new Uint8Array(4);
  const view = new DataView(head.buffer);
  view.setUint16(0, code, true);
  view.setUint16(2, value.length, true);
  return Buffer.concat([head, padded(value)]);
}

function padded(bytes: Uint8Array): Uint8Array {
  const missing = (4 - (bytes.length % 4)) % 4;
  return missing === 0 ? bytes : Buffer.concat([bytes, new Uint8Array(missing)]);
}

const textBytes = (text: string): Uint8Array => Buffer.from(text).subarray(0, MAX_TEXT_BYTES);
