/** Reads Protobuf's wire format from a slice of bytes. Every method throws Error on malformed input. */
export class WireReader {
  readonly bytes: Buffer;
  readonly end: number;
  at: number;

  constructor(bytes: Buffer, start = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = start;
    this.end = end;
  }

  get done(): boolean {
    return this.at >= this.end;
  }

  /** Reads a varint as a number; 64-bit values are signed, those beyond 2^53 lose precision as in JSON. */
  varint(): number {
    let low = 0;
    let multiplier = 1;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.byte();
      low += (byte & 0x7f) * multiplier;
      if (byte < 0x80) return low;
      multiplier *= 128;
    }
    let value = BigInt(low);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return Number(BigInt.asIntN(64, value));
    }
    throw new Error('a varint is longer than ten bytes');
  }

  double(): number {
    this.need(8);
    const value = this.bytes.readDoubleLE(this.at);
    this.at += 8;
    return value;
  }

  /** Returns a reader of a length-delimited value. */
  nested(): WireReader {
    const length = this.varint();
    if (length < 0) throw new Error('a length is negative');
    this.need(length);
    const start = this.at;
    this.at += length;
    return new WireReader(this.bytes, start, this.at);
  }

  text(): string {
    const { at, end } = this.nested();
    return this.bytes.toString('utf8', at, end);
  }

  slice(): Buffer {
    const { at, end } = this.nested();
    return this.bytes.subarray(at, end);
  }

  skip(wireType: number): void {
    switch (wireType) {
      case VARINT:
        this.varint();
        return;
      case FIXED64:
        this.need(8);
        this.at += 8;
        return;
      case DELIMITED:
        this.nested();
        return;
      case FIXED32:
        this.need(4);
        this.at += 4;
        return;
      default:
        throw new Error(`wire type ${wireType} is not known`);
    }
  }

  private byte(): number {
    this.need(1);
    return this.bytes[this.at++] ?? 0;
  }

  private need(count: number): void {
    if (this.at + count > this.end) throw new Error('the message ends within a value');
  }
}

/** Texts up to this length are written byte by byte, which is faster than a call of the runtime; one byte has their length. */
const SHORT_TEXT = 64;

/** Writes Protobuf's wire format. */
export class WireWriter {
  #bytes = Buffer.allocUnsafe(64);
  #length = 0;

  varint(value: number | bigint): void {
    this.#reserve(10);
    if (typeof value === 'number' && value >= 0 && value < 2 ** 31) {
      let rest = value;
      while (rest > 127) {
        this.#bytes[this.#length++] = (rest & 127) | 128;
        rest >>>= 7;
      }
      this.#bytes[this.#length++] = rest;
      return;
    }
    let rest = BigInt.asUintN(64, BigInt(value));
    while (rest > 127n) {
      this.#bytes[this.#length++] = Number(rest & 127n) | 128;
      rest >>= 7n;
    }
    this.#bytes[this.#length++] = Number(rest);
  }

  tag(number: number, wireType: number): void {
    this.varint(number * 8 + wireType);
  }

  double(value: number): void {
    this.#reserve(8);
    this.#length = this.#bytes.writeDoubleLE(value, this.#length);
  }

  /** Writes a field with a length-delimited value. */
  delimited(number: number, bytes: Uint8Array): void {
    this.tag(number, DELIMITED);
    this.varint(bytes.length);
    this.raw(bytes);
  }

  /** Writes a field with text, in UTF-8. */
  text(number: number, text: string): void {
    this.tag(number, DELIMITED);
    if (text.length <= SHORT_TEXT && this.#shortText(text)) return;
    const length = Buffer.byteLength(text);
    this.varint(length);
    this.#reserve(length);
    this.#bytes.write(text, this.#length, length, 'utf8');
    this.#length += length;
  }

  /** Writes a short text of ASCII with its length; returns false, with nothing written, for other text. */
  #shortText(text: string): boolean {
    const { length } = text;
    this.#reserve(length + 1);
    const bytes = this.#bytes;
    let at = this.#length;
    bytes[at++] = length;
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(i);
      if (code > 127) return false;
      bytes[at++] = code;
    }
    this.#length = at;
    return true;
  }

  /** Writes a field with a message, which `write` writes with this writer. */
  message(number: number, write: () => void): void {
    const start = this.begin(number);
    write();
    this.end(start);
  }

  /** Begins a field with a message; everything written until `end` is the message. Returns its start, for `end`. */
  begin(number: number): number {
    this.tag(number, DELIMITED);
    // One byte for the length, which is known at the end.
    this.#reserve(1);
    return ++this.#length;
  }

  end(start: number): void {
    const length = this.#length - start;
    if (length < 128) {
      this.#bytes[start - 1] = length;
      return;
    }
    const more = varintLength(length) - 1;
    this.#reserve(more);
    this.#bytes.copyWithin(start + more, start, this.#length);
    this.#length = start - 1;
    this.varint(length);
    this.#length += length;
  }

  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  finish(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(needed, this.#bytes.length * 2));
    grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
  }
}

/** Returns the size of a small number as a varint, in bytes. */
function varintLength(value: number): number {
  let length = 1;
  for (let rest = value; rest > 127; rest = Math.floor(rest / 128)) length++;
  return length;
}

export const VARINT = 0;
export const FIXED64 = 1;
export const DELIMITED = 2;
const FIXED32 = 5;
