/** Bit of an attribute's type for nested attributes, which stricter netlink families require. */
export const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;

/**
 * Writes netlink messages and their attributes (netlink(7)) into one growing buffer. Numbers are in host order,
 * little-endian on every machine that Fairlead runs on, unless the method says `be`.
 */
export class MessageWriter {
  #bytes: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #length = 0;

  constructor(capacity = 4096) {
    this.#bytes = new Uint8Array(capacity);
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** Bytes written so far. */
  get length(): number {
    return this.#length;
  }

  /** Returns the written bytes; valid until the next write. */
  bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  /**
   * Starts a message (struct nlmsghdr). The result is the argument of `endMessage`, which fills in the
   * length.
   */
  beginMessage(type: number, flags: number, sequence: number): number {
    const start = this.#reserve(16);
    this.#view.setUint16(start + 4, type, true);
    this.#view.setUint16(start + 6, flags, true);
    this.#view.setUint32(start + 8, sequence, true);
    this.#view.setUint32(start + 12, 0, true);
    return start;
  }

  endMessage(start: number): void {
    this.#view.setUint32(start, this.#length - start, true);
    this.#align();
  }

  u8(value: number): this {
    const at = this.#reserve(1);
    this.#view.setUint8(at, value);
    return this;
  }

  u16(value: number): this {
    const at = this.#reserve(2);
    this.#view.setUint16(at, value, true);
    return this;
  }

  u32(value: number): this {
    const at = this.#reserve(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  be16(value: number): this {
    const at = this.#reserve(2);
    this.#view.setUint16(at, value);
    return this;
  }

  be32(value: number): this {
    const at = this.#reserve(4);
    this.#view.setUint32(at, value);
    return this;
  }

  /**
   * Appends a copy of all bytes from `start` on, of which the caller overwrites some. Returns the copy's
   * offset.
   */
  repeat(start: number): number {
    const end = this.#length;
    const at = this.#reserve(end - start);
    this.#bytes.copyWithin(at, start, end);
    return at;
  }

  /** Overwrites a number written earlier. */
  putU32(at: number, value: number): this {
    this.#view.setUint32(at, value, true);
    return this;
  }

  /** Overwrites a number written earlier. */
  putBe16(at: number, value: number): this {
    this.#view.setUint16(at, value);
    return this;
  }

  /** Overwrites bytes written earlier. */
  put(at: number, bytes: Uint8Array): this {
    this.#bytes.set(bytes, at);
    return this;
  }

  /** Appends bytes unchanged, without alignment. */
  raw(bytes: Uint8Array): this {
    const at = this.#reserve(bytes.length);
    this.#bytes.set(bytes, at);
    return this;
  }

  attribute(type: number, value: Uint8Array): this {
    const at = this.#attribute(type, value.length);
    this.#bytes.set(value, at);
    return this;
  }

  /** Writes an attribute without a value. */
  flag(type: number): this {
    this.#attribute(type, 0);
    return this;
  }

  attributeU8(type: number, value: number): this {
    const at = this.#attribute(type, 1);
    this.#view.setUint8(at, value);
    return this;
  }

  attributeU16(type: number, value: number): this {
    const at = this.#attribute(type, 2);
    this.#view.setUint16(at, value, true);
    return this;
  }

  attributeU32(type: number, value: number): this {
    const at = this.#attribute(type, 4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  attributeBe16(type: number, value: number): this {
    const at = this.#attribute(type, 2);
    this.#view.setUint16(at, value);
    return this;
  }

  attributeBe32(type: number, value: number): this {
    const at = this.#attribute(type, 4);
    this.#view.setUint32(at, value);
    return this;
  }

  attributeBe64(type: number, value: bigint): this {
    const at = this.#attribute(type, 8);
    this.#view.setBigUint64(at, value);
    return this;
  }

  /** Writes a text attribute with its terminating zero. */
  attributeText(type: number, text: string): this {
    const bytes = textEncoder.encode(text);
    const at = this.#attribute(type, bytes.length + 1);
    this.#bytes.set(bytes, at);
    return this;
  }

  /** Writes an attribute that contains the attributes written by `write`. */
  nested(type: number, write: () => void): this {
    const start = this.beginNested(type);
    write();
    this.endNested(start);
    return this;
  }

  beginNested(type: number): number {
    const start = this.#reserve(4);
    this.#view.setUint16(start + 2, type | NLA_F_NESTED, true);
    return start;
  }

  /** Ends a nest. Throws RangeError if the content is too long for an attribute's 16-bit length. */
  endNested(start: number): void {
    const length = this.#length - start;
    if (length > 0xffff) throw new RangeError(`a netlink attribute of ${length} bytes is longer than 65535`);
    this.#view.setUint16(start, length, true);
  }

  #attribute(type: number, length: number): number {
    const padded = (length + 3) & ~3;
    const start = this.#reserve(4 + padded);
    this.#view.setUint16(start, 4 + length, true);
    this.#view.setUint16(start + 2, type, true);
    return start + 4;
  }

  #align(): void {
    this.#reserve((4 - (this.#length & 3)) & 3);
  }

  /** Makes room for `count` zero bytes at the end; returns where they start. May replace `#view`: call it first. */
  #reserve(count: number): number {
    const start = this.#length;
    this.#length += count;
    if (this.#length > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length));
      grown.set(this.#bytes.subarray(0, start));
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    return start;
  }
}

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder();

/** The attributes of a message or a nest, by type. Views into the message, not copies. */
export type Attributes = ReadonlyMap<number, Uint8Array>;

/** Yields attributes in order; a list may repeat a type. Stops at a malformed one. */
export function* eachAttribute(bytes: Uint8Array): Generator<[type: number, value: Uint8Array]> {
  let at = 0;
  while (at + 4 <= bytes.length) {
    const length = readU16(bytes, at);
    if (length < 4 || at + length > bytes.length) return;
    yield [readU16(bytes, at + 2) & NLA_TYPE_MASK, bytes.subarray(at + 4, at + length)];
    at += (length + 3) & ~3;
  }
}

/** Returns attributes by type; the last one wins if a type is repeated. */
export function readAttributes(bytes: Uint8Array): Attributes {
  return new Map(eachAttribute(bytes));
}

export function readU16(bytes: Uint8Array, at = 0): number {
  return (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
}

export function readU32(bytes: Uint8Array, at = 0): number {
  return (readU16(bytes, at) | (readU16(bytes, at + 2) << 16)) >>> 0;
}

export function readI32(bytes: Uint8Array, at = 0): number {
  return readU32(bytes, at) | 0;
}

export function readBe16(bytes: Uint8Array, at = 0): number {
  return ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
}

export function readBe32(bytes: Uint8Array, at = 0): number {
  return ((readBe16(bytes, at) << 16) | readBe16(bytes, at + 2)) >>> 0;
}

export function readBe64(bytes: Uint8Array, at = 0): bigint {
  return (BigInt(readBe32(bytes, at)) << 32n) | BigInt(readBe32(bytes, at + 4));
}

/** Returns text up to its terminating zero. */
export function readText(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return textDecoder.decode(end < 0 ? bytes : bytes.subarray(0, end));
}
