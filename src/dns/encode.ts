import {
  CLASS_IN,
  type Edns,
  type Header,
  type Name,
  type Question,
  type RecordData,
  type ResourceRecord,
  type SoaData,
  TYPE,
} from './message.ts';

/** The maximum size of a TCP message (its length field), and so of any message. */
export const MAX_MESSAGE_BYTES = 65535;

/** Room beyond the limit, so that a record can be written before its size is checked. */
const SCRATCH_BYTES = MAX_MESSAGE_BYTES + 0x10000 + 1024;

export interface OutgoingMessage {
  readonly header: Header;
  readonly question: Question | null;
  readonly answers: readonly ResourceRecord[];
  readonly authorities: readonly ResourceRecord[];
  readonly additionals: readonly ResourceRecord[];
  readonly edns: Edns | null;
}

interface Writer {
  readonly bytes: Buffer;
  offset: number;
  /** The positions of written names and their suffixes; null until a second name is written. */
  names: Map<Name, number> | null;
  readonly question: Name | null;
}

/** Reused by every call: encoding is synchronous and the result is a copy. */
let scratch: Buffer | null = null;

/**
 * Encodes a message of at most `limit` bytes. Answers and authority records that do not fit are left out and TC is
 * set; additional records that do not fit are left out silently (RFC 2181, 9). Names that cannot be encoded (a
 * label over 63 octets) are written as the root.
 */
export function encodeMessage(message: OutgoingMessage, limit: number = MAX_MESSAGE_BYTES): Buffer {
  scratch ??= Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  const { header, question, edns } = message;
  const writer: Writer = { bytes: scratch, offset: 12, names: null, question: question?.name ?? null };
  if (question) {
    writeLabels(writer, question.name);
    writeUint16(writer, question.type);
    writeUint16(writer, question.class);
  }
  const room = Math.min(limit, MAX_MESSAGE_BYTES) - (edns ? 11 : 0);
  const answers = writeRecords(writer, message.answers, room);
  const authorities = writeRecords(writer, message.authorities, room);
  const truncated = answers < message.answers.length || authorities < message.authorities.length;
  const additionals = truncated ? 0 : writeRecords(writer, message.additionals, room);
  if (edns) writeEdns(writer, edns, header.rcode);
  const end = writer.offset;

  writer.offset = 0;
  writeUint16(writer, header.id);
  writeUint16(writer, flagsOf(header, truncated));
  writeUint16(writer, question ? 1 : 0);
  writeUint16(writer, answers);
  writeUint16(writer, authorities);
  writeUint16(writer, additionals + (edns ? 1 : 0));
  const copy = Buffer.allocUnsafe(end);
  scratch.copy(copy, 0, 0, end);
  return copy;
}

/** Returns the wire form of a TXT record's strings, each truncated to 255 octets. */
export function textData(...strings: string[]): Uint8Array {
  return Buffer.concat(
    strings.map((text) => {
      const bytes = Buffer.from(text, 'latin1').subarray(0, 255);
      return Buffer.concat([Buffer.of(bytes.length), bytes]);
    }),
  );
}

function flagsOf(header: Header, truncated: boolean): number {
  return (
    (header.response ? 0x8000 : 0) |
    ((header.opcode & 0xf) << 11) |
    (header.authoritative ? 0x0400 : 0) |
    (header.truncated || truncated ? 0x0200 : 0) |
    (header.recursionDesired ? 0x0100 : 0) |
    (header.recursionAvailable ? 0x0080 : 0) |
    (header.authenticData ? 0x0020 : 0) |
    (header.checkingDisabled ? 0x0010 : 0) |
    (header.rcode & 0xf)
  );
}

/** Writes records while they fit; returns their number. */
function writeRecords(writer: Writer, records: readonly ResourceRecord[], room: number): number {
  let count = 0;
  for (const record of records) {
    const start = writer.offset;
    if (start > room) return count;
    writeRecord(writer, record);
    if (writer.offset > room) {
      forgetNamesFrom(writer, start);
      writer.offset = start;
      return count;
    }
    count++;
  }
  return count;
}

function forgetNamesFrom(writer: Writer, offset: number): void {
  for (const [name, at] of writer.names ?? []) if (at >= offset) writer.names?.delete(name);
}

function writeRecord(writer: Writer, record: ResourceRecord): void {
  writeName(writer, record.name);
  writeUint16(writer, record.type);
  writeUint16(writer, record.class);
  writeUint32(writer, record.ttl);
  const lengthAt = writer.offset;
  writer.offset += 2;
  writeData(writer, record.type, record.data);
  writer.bytes.writeUInt16BE(writer.offset - lengthAt - 2, lengthAt);
}

function writeData(writer: Writer, type: number, data: RecordData): void {
  if (data instanceof Uint8Array) {
    const bytes = data.length > MAX_MESSAGE_BYTES ? data.subarray(0, MAX_MESSAGE_BYTES) : data;
    writer.bytes.set(bytes, writer.offset);
    writer.offset += bytes.length;
    return;
  }
  if ('primary' in data) {
    writeSoa(writer, data);
    return;
  }
  if ('priority' in data) {
    writeUint16(writer, data.priority);
    writeUint16(writer, data.weight);
    writeUint16(writer, data.port);
  } else if ('preference' in data) {
    writeUint16(writer, data.preference);
  }
  // RFC 2782 and RFC 6672 forbid compressed names in SRV and DNAME.
  if (type === TYPE.SRV || type === TYPE.DNAME) writeLabels(writer, data.target);
  else writeName(writer, data.target);
}

function writeSoa(writer: Writer, soa: SoaData): void {
  writeName(writer, soa.primary);
  writeName(writer, soa.mailbox);
  for (const value of [soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum]) {
    writeUint32(writer, value);
  }
}

function writeEdns(writer: Writer, edns: Edns, rcode: number): void {
  writer.bytes[writer.offset++] = 0;
  writeUint16(writer, TYPE.OPT);
  writeUint16(writer, edns.udpSize);
  writer.bytes[writer.offset++] = (rcode >> 4) & 0xff;
  writer.bytes[writer.offset++] = edns.version;
  writeUint16(writer, edns.dnssecOk ? 0x8000 : 0);
  writeUint16(writer, 0);
}

/** Writes a name, with a pointer to an earlier one with the same suffix. */
function writeName(writer: Writer, name: Name): void {
  if (name === writer.question && name !== '') {
    writeUint16(writer, 0xc00c);
    return;
  }
  writer.names ??= namesOfQuestion(writer.question);
  let rest = name;
  while (rest !== '') {
    const known = writer.names.get(rest);
    if (known !== undefined) {
      writeUint16(writer, 0xc000 | known);
      return;
    }
    // A pointer has 14 bits.
    if (writer.offset < 0x4000) writer.names.set(rest, writer.offset);
    const end = endOfLabel(rest);
    if (!writeLabel(writer, rest.slice(0, end))) break;
    rest = rest.slice(end + 1);
  }
  writer.bytes[writer.offset++] = 0;
}

function namesOfQuestion(question: Name | null): Map<Name, number> {
  const names = new Map<Name, number>();
  let offset = 12;
  for (let rest = question ?? ''; rest !== ''; ) {
    names.set(rest, offset);
    const end = endOfLabel(rest);
    offset += labelBytes(rest.slice(0, end)).length + 1;
    rest = rest.slice(end + 1);
  }
  return names;
}

function writeLabels(writer: Writer, name: Name): void {
  for (let rest = name; rest !== ''; ) {
    const end = endOfLabel(rest);
    if (!writeLabel(writer, rest.slice(0, end))) break;
    rest = rest.slice(end + 1);
  }
  writer.bytes[writer.offset++] = 0;
}

function writeLabel(writer: Writer, label: string): boolean {
  if (!label.includes('\\')) {
    if (label.length === 0 || label.length > 63) return false;
    writer.bytes[writer.offset] = label.length;
    writer.bytes.write(label, writer.offset + 1, 'latin1');
    writer.offset += label.length + 1;
    return true;
  }
  const bytes = labelBytes(label);
  if (bytes.length === 0 || bytes.length > 63) return false;
  writer.bytes[writer.offset] = bytes.length;
  writer.bytes.set(bytes, writer.offset + 1);
  writer.offset += bytes.length + 1;
  return true;
}

/** Returns the end of a name's first label: its first unescaped dot, or the end of the name. */
function endOfLabel(name: Name): number {
  const dot = name.indexOf('.');
  if (dot < 0) return name.length;
  if (name[dot - 1] !== '\\') return dot;
  for (let i = 0; i < name.length; i++) {
    if (name[i] === '\\') i++;
    else if (name[i] === '.') return i;
  }
  return name.length;
}

function labelBytes(label: string): Buffer {
  if (!label.includes('\\')) return Buffer.from(label, 'latin1');
  const text = label.replace(/\\([0-9]{3}|.)/g, (_, escaped: string) =>
    escaped.length === 3 ? String.fromCharCode(Number(escaped) & 0xff) : escaped,
  );
  return Buffer.from(text, 'latin1');
}

function writeUint16(writer: Writer, value: number): void {
  writer.bytes[writer.offset++] = (value >> 8) & 0xff;
  writer.bytes[writer.offset++] = value & 0xff;
}

function writeUint32(writer: Writer, value: number): void {
  writeUint16(writer, value >>> 16);
  writeUint16(writer, value & 0xffff);
}

/** Returns an address record, A or AAAA by the number of bytes. */
export function addressRecord(name: Name, bytes: Uint8Array, ttl: number): ResourceRecord {
  return { name, type: bytes.length === 4 ? TYPE.A : TYPE.AAAA, class: CLASS_IN, ttl, data: bytes };
}

/** Encodes a query to a recursive name server. Default: a query without EDNS that clears the AD and CD bits. */
export function encodeQuery(
  id: number,
  question: Question,
  options: {
    readonly authenticData?: boolean;
    readonly checkingDisabled?: boolean;
    readonly edns?: Edns | null;
  } = {},
): Buffer {
  const { authenticData = false, checkingDisabled = false, edns = null } = options;
  return encodeMessage({
    header: {
      id,
      response: false,
      opcode: 0,
      authoritative: false,
      truncated: false,
      recursionDesired: true,
      recursionAvailable: false,
      authenticData,
      checkingDisabled,
      rcode: 0,
    },
    question,
    answers: [],
    authorities: [],
    additionals: [],
    edns,
  });
}

/** Encodes a question of the class IN to a recursive name server. */
export const encodeQuestion = (id: number, name: string, type: number): Buffer =>
  encodeQuery(id, { name, type, class: CLASS_IN });
