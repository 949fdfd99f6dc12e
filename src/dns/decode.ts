import {
  type Edns,
  type Header,
  type Message,
  type Name,
  type Query,
  type Question,
  RCODE,
  type RecordData,
  type ResourceRecord,
  TYPE,
} from './message.ts';

const HEADER_BYTES = 12;
/** RFC 1035, 2.3.4: octets of a name on the wire. */
const MAX_NAME_BYTES = 255;
/** Of one name, which has at most 127 labels. */
const MAX_POINTERS = 127;

/**
 * A position in a message. Reading past the end, or anything malformed, sets `failed` and yields zeros from then
 * on, so that decoding never throws and one check at the end is enough.
 */
interface Cursor {
  readonly bytes: Uint8Array;
  offset: number;
  failed: boolean;
  /** Octets of the name that was read last, without the root's. */
  nameLength: number;
  /** Names by the positions that pointers lead to: an answer of 64 KiB repeats one of 255 octets 5,000 times. */
  names?: Map<number, KnownName>;
}

interface KnownName {
  readonly text: Name;
  /** Octets, without the root's. */
  readonly length: number;
}

/** Returns the header of a message, or null if there are fewer than 12 bytes. */
export function decodeHeader(bytes: Uint8Array): Header | null {
  if (bytes.length < HEADER_BYTES) return null;
  const high = bytes[2] ?? 0;
  const low = bytes[3] ?? 0;
  return {
    id: ((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0),
    response: (high & 0x80) !== 0,
    opcode: (high >> 3) & 0xf,
    authoritative: (high & 0x04) !== 0,
    truncated: (high & 0x02) !== 0,
    recursionDesired: (high & 0x01) !== 0,
    recursionAvailable: (low & 0x80) !== 0,
    authenticData: (low & 0x20) !== 0,
    checkingDisabled: (low & 0x10) !== 0,
    rcode: low & 0xf,
  };
}

/**
 * Decodes one question, and EDNS if present; skips other records. Returns the response code of the refusal
 * if that is impossible: FORMERR, or BADVERS for an EDNS version other than 0. `header` is the header of
 * the same bytes.
 */
export function decodeQuery(
  bytes: Uint8Array,
  header: Header,
): Query | { readonly refuse: number; readonly question: Question | null } {
  const cursor: Cursor = { bytes, offset: 4, failed: false, nameLength: 0 };
  const questions = uint16(cursor);
  const answers = uint16(cursor);
  const authorities = uint16(cursor);
  const additionals = uint16(cursor);
  if (questions !== 1) return { refuse: RCODE.FORMERR, question: null };
  const question = decodeQuestion(cursor);
  if (cursor.failed) return { refuse: RCODE.FORMERR, question: null };
  let edns: Edns | null = null;
  for (let i = 0; i < answers + authorities + additionals && !cursor.failed; i++) {
    const start = cursor.offset;
    skipName(cursor);
    const type = uint16(cursor);
    const udpSize = uint16(cursor);
    const ttl = uint32(cursor);
    const length = uint16(cursor);
    cursor.offset += length;
    if (cursor.offset > bytes.length) cursor.failed = true;
    if (type !== TYPE.OPT || i < answers + authorities) continue;
    if (edns || bytes[start] !== 0) cursor.failed = true;
    edns = { udpSize, version: (ttl >>> 16) & 0xff, dnssecOk: (ttl & 0x8000) !== 0 };
  }
  if (cursor.failed) return { refuse: RCODE.FORMERR, question };
  if (edns && edns.version !== 0) return { refuse: RCODE.BADVERS, question };
  return { ...header, question, edns };
}

/** Decodes a whole message; returns null if it is malformed. Bytes after the last record are ignored. */
export function decodeMessage(bytes: Uint8Array): Message | null {
  const header = decodeHeader(bytes);
  if (!header) return null;
  const cursor: Cursor = { bytes, offset: 4, failed: false, nameLength: 0 };
  const counts = [uint16(cursor), uint16(cursor), uint16(cursor), uint16(cursor)] as const;
  const questions: Question[] = [];
  for (let i = 0; i < counts[0] && !cursor.failed; i++) questions.push(decodeQuestion(cursor));
  const answers = decodeRecords(cursor, counts[1]);
  const authorities = decodeRecords(cursor, counts[2]);
  const additionals = decodeRecords(cursor, counts[3]);
  if (cursor.failed) return null;
  const opt = additionals.find((record) => record.type === TYPE.OPT);
  return {
    ...header,
    rcode: header.rcode | (opt ? (opt.ttl >>> 24) << 4 : 0),
    questions,
    answers,
    authorities,
    additionals: opt ? additionals.filter((record) => record.type !== TYPE.OPT) : additionals,
    edns: opt
      ? { udpSize: opt.class, version: (opt.ttl >>> 16) & 0xff, dnssecOk: (opt.ttl & 0x8000) !== 0 }
      : null,
  };
}

function decodeQuestion(cursor: Cursor): Question {
  return { name: decodeName(cursor), type: uint16(cursor), class: uint16(cursor) };
}

function decodeRecords(cursor: Cursor, count: number): ResourceRecord[] {
  const records: ResourceRecord[] = [];
  for (let i = 0; i < count && !cursor.failed; i++) {
    const name = decodeName(cursor);
    const type = uint16(cursor);
    const recordClass = uint16(cursor);
    const rawTtl = uint32(cursor);
    const length = uint16(cursor);
    const end = cursor.offset + length;
    if (end > cursor.bytes.length) cursor.failed = true;
    if (cursor.failed) break;
    const data = decodeData(cursor, type, end);
    if (cursor.offset !== end) cursor.failed = true;
    // RFC 2181, 8: a TTL with the top bit set means zero. In OPT the field is not a TTL.
    const ttl = type !== TYPE.OPT && rawTtl > 0x7fffffff ? 0 : rawTtl;
    records.push({ name, type, class: recordClass, ttl, data });
  }
  return records;
}

function decodeData(cursor: Cursor, type: number, end: number): RecordData {
  switch (type) {
    case TYPE.NS:
    case TYPE.CNAME:
    case TYPE.PTR:
    case TYPE.DNAME:
      return { target: decodeName(cursor) };
    case TYPE.MX:
      return { preference: uint16(cursor), target: decodeName(cursor) };
    case TYPE.SRV:
      return {
        priority: uint16(cursor),
        weight: uint16(cursor),
        port: uint16(cursor),
        target: decodeName(cursor),
      };
    case TYPE.SOA:
      return {
        primary: decodeName(cursor),
        mailbox: decodeName(cursor),
        serial: uint32(cursor),
        refresh: uint32(cursor),
        retry: uint32(cursor),
        expire: uint32(cursor),
        minimum: uint32(cursor),
      };
    default: {
      const data = Uint8Array.from(cursor.bytes.subarray(cursor.offset, end));
      cursor.offset = end;
      return data;
    }
  }
}

/**
 * Reads a name, following compression pointers. Each pointer must lead before the labels read since the last one,
 * which rules out loops; the whole is bounded by 255 octets.
 */
function decodeName(cursor: Cursor, pointers = MAX_POINTERS): Name {
  const { bytes } = cursor;
  const start = cursor.offset;
  let at = start;
  let length = 0;
  let text = '';
  for (;;) {
    const size = bytes[at];
    if (size === undefined) break;
    if (size === 0) {
      cursor.offset = at + 1;
      cursor.nameLength = length;
      return text;
    }
    if (size >= 0xc0) {
      const target = ((size & 0x3f) << 8) | (bytes[at + 1] ?? 0);
      if (at + 1 >= bytes.length || target >= start || target < HEADER_BYTES || pointers === 0) break;
      const rest = nameAt(cursor, target, pointers - 1);
      if (cursor.failed || length + rest.length >= MAX_NAME_BYTES) break;
      cursor.offset = at + 2;
      cursor.nameLength = length + rest.length;
      return text + (text === '' || rest.text === '' ? '' : '.') + rest.text;
    }
    length += size + 1;
    if (size > 63 || length >= MAX_NAME_BYTES || at + 1 + size > bytes.length) break;
    if (text !== '') text += '.';
    for (let i = at + 1; i <= at + size; i++) text += LABEL_TEXT[bytes[i] ?? 0];
    at += size + 1;
  }
  cursor.failed = true;
  return '';
}

/** Reads the name that a pointer leads to, once for all pointers. */
function nameAt(cursor: Cursor, target: number, pointers: number): KnownName {
  cursor.names ??= new Map();
  const known = cursor.names.get(target);
  if (known) return known;
  cursor.offset = target;
  const text = decodeName(cursor, pointers);
  const name = { text, length: cursor.nameLength };
  cursor.names.set(target, name);
  return name;
}

/** Skips a name without following its pointer. */
function skipName(cursor: Cursor): void {
  const { bytes } = cursor;
  for (let length = 0; ; ) {
    const size = bytes[cursor.offset];
    if (size === undefined || (size > 63 && size < 0xc0) || length > MAX_NAME_BYTES) {
      cursor.failed = true;
      return;
    }
    if (size >= 0xc0) {
      cursor.offset += 2;
      return;
    }
    cursor.offset += size + 1;
    if (size === 0) return;
    length += size + 1;
  }
}

/** The text of each byte inside a label. */
const LABEL_TEXT: readonly string[] = Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  if (character === '.' || character === '\\') return `\\${character}`;
  return byte > 0x20 && byte < 0x7f ? character : `\\${String(byte).padStart(3, '0')}`;
});

function uint16(cursor: Cursor): number {
  const at = cursor.offset;
  if (at + 2 > cursor.bytes.length) {
    cursor.failed = true;
    return 0;
  }
  cursor.offset = at + 2;
  return ((cursor.bytes[at] ?? 0) << 8) | (cursor.bytes[at + 1] ?? 0);
}

function uint32(cursor: Cursor): number {
  return uint16(cursor) * 0x10000 + uint16(cursor);
}
