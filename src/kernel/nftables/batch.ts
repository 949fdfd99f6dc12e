import { NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST } from '../netlink/socket.ts';
import {
  BYTE_ORDER,
  concatLength,
  concatType,
  type DataType,
  HOOK,
  type Hook,
  NFNL_MSG_BATCH_BEGIN,
  NFNL_MSG_BATCH_END,
  NFNL_SUBSYS_NFTABLES,
  NFT_MSG,
  SET_FLAG,
  UDATA_ELEMENT_COMMENT,
  UDATA_RULE_COMMENT,
  UDATA_SET_DATA_BYTE_ORDER,
  UDATA_SET_KEY_BYTE_ORDER,
  VERDICT,
  VERDICT_DATA,
} from './constants.ts';

/** A 32-bit word whose bytes in memory are `value` in network order (hosts are little-endian). */
export function be32(value: number): number {
  return (
    (((value & 0xff) << 24) |
      ((value & 0xff00) << 8) |
      ((value >>> 8) & 0xff00) |
      ((value >>> 24) & 0xff)) >>>
    0
  );
}

/** The same for a 16-bit number in the first two bytes of a word, as ports stand in registers. */
export function be16(value: number): number {
  return ((value & 0xff) << 8) | ((value >>> 8) & 0xff);
}

/** Part of a rule: writes one or more expressions. */
export type Expression = (batch: NftBatch) => void;

export interface SetDefinition {
  readonly name: string;
  readonly key: readonly DataType[];
  /** Absent: a set. `verdict`: a verdict map. */
  readonly data?: readonly DataType[] | 'verdict';
  /** How many elements fit; the kernel then uses a hash of fixed size, twice as fast to fill. */
  readonly size?: number;
  readonly interval?: boolean;
  /** Elements may expire, and rules may add and update them. */
  readonly dynamic?: boolean;
}

export interface BaseChain {
  readonly type: 'nat' | 'filter' | 'route';
  readonly hook: Hook;
  readonly priority: number;
  readonly policy?: 'accept' | 'drop';
}

export type ElementVerdict = 'accept' | 'drop' | { readonly goto: string };

export interface Element {
  /** Words as they stand in registers. */
  readonly key: ArrayLike<number>;
  /** For intervals of a concatenation: the highest key that belongs to it. */
  readonly keyEnd?: ArrayLike<number>;
  readonly data?: ArrayLike<number>;
  readonly verdict?: ElementVerdict;
  /** For intervals of one field: this is the first key that no longer belongs to one. */
  readonly intervalEnd?: boolean;
  readonly timeoutMs?: number;
  readonly expiresMs?: number;
  /** Shown by `nft list`. */
  readonly comment?: string;
}

const NESTED = 0x8000;
/** Attributes have 16-bit lengths; a list of elements is split before. */
const MAX_ELEMENTS_WORDS = 16_200;
const text = new TextEncoder();

/**
 * One nf_tables transaction: everything in it takes effect at once or not at all. Everything in netlink is aligned
 * to 32 bits, so that it is written word by word.
 *
 * Objects are referred to by name, never by transaction id: what was written compares with what is dumped.
 */
export class NftBatch {
  #words: Uint32Array<ArrayBuffer>;
  #bytes: Uint8Array<ArrayBuffer>;
  /** In words. */
  #at = 0;
  #messageStart = 0;
  #lastMessage = -1;
  readonly #nests: number[] = [];
  readonly #sequence: () => number;
  readonly #objects = new Map<number, string>();
  readonly #owners = new Map<number, string>();
  #owner: string | null = null;
  #setId = 0;
  #operations = 0;
  #family: number;
  #elements: { type: number; flags: number; table: string; set: string; open: number } | null = null;

  /** `sequence` gives fresh sequence numbers; `generation`: commit only if the ruleset still has this number. */
  constructor(
    family: number,
    sequence: () => number,
    options: { generation?: number; capacity?: number } = {},
  ) {
    this.#family = family;
    this.#sequence = sequence;
    const buffer = new ArrayBuffer(((options.capacity ?? 8192) + 3) & ~3);
    this.#words = new Uint32Array(buffer);
    this.#bytes = new Uint8Array(buffer);
    this.#begin(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, be16(NFNL_SUBSYS_NFTABLES), 'the transaction');
    if (options.generation !== undefined) this.be32(1, options.generation);
    this.#end();
    this.#lastMessage = -1;
  }

  /** Messages and elements written. */
  get operations(): number {
    return this.#operations;
  }

  /** Bytes written so far. */
  get length(): number {
    return this.#at * 4;
  }

  bytesFrom(start: number): Uint8Array {
    return this.#bytes.slice(start, this.#at * 4);
  }

  /** Makes room for about this many bytes more, so that they need not be copied to grow. */
  reserve(bytes: number): void {
    this.#room((bytes + 3) >> 2);
  }

  get empty(): boolean {
    return this.#lastMessage < 0 && this.#elements === null;
  }

  /** Ends the transaction: its bytes, and the sequence number of the message that is acknowledged. */
  finish(): { readonly bytes: Uint8Array; readonly last: number } {
    this.endElements();
    const at = Math.max(this.#lastMessage, 0);
    this.#words[at + 1] = (this.#words[at + 1] ?? 0) | (NLM_F_ACK << 16);
    const last = this.#words[at + 2] ?? 0;
    this.#begin(NFNL_MSG_BATCH_END, NLM_F_REQUEST, 0, be16(NFNL_SUBSYS_NFTABLES), 'the transaction');
    this.#end();
    return { bytes: this.#bytes.subarray(0, this.#at * 4), last };
  }

  /** What the message with this sequence number writes, in words of `nft`. */
  object(sequence: number): string {
    return this.#objects.get(sequence) ?? 'an object';
  }

  /**
   * What is written from now on is written for `owner`, in messages of its own, so that refusals can be laid to it;
   * null: for nobody. Makes a transaction longer.
   */
  writeFor(owner: string | null): void {
    this.endElements();
    this.#owner = owner;
  }

  /** For whom the message with this sequence number was written. */
  owner(sequence: number): string | null {
    return this.#owners.get(sequence) ?? null;
  }

  addTable(name: string, flags = 0): void {
    this.#message(NFT_MSG.newTable, NLM_F_CREATE, `table ${name}`);
    this.text(1, name);
    this.be32(2, flags);
    this.#end();
  }

  deleteTable(name: string): void {
    this.#message(NFT_MSG.delTable, 0, `table ${name}`);
    this.text(1, name);
    this.#end();
  }

  addChain(table: string, name: string, base?: BaseChain): void {
    this.#message(NFT_MSG.newChain, NLM_F_CREATE, `chain ${name}`);
    this.text(1, table);
    this.text(3, name);
    if (base) {
      this.nest(4);
      this.be32(1, HOOK[base.hook]);
      this.be32(2, base.priority >>> 0);
      this.endNest();
      this.be32(5, base.policy === 'drop' ? VERDICT.drop : VERDICT.accept);
      this.text(7, base.type);
    }
    this.#end();
  }

  deleteChain(table: string, name: string): void {
    this.#message(NFT_MSG.delChain, 0, `chain ${name}`);
    this.text(1, table);
    this.text(3, name);
    this.#end();
  }

  /** Appends a rule. */
  addRule(table: string, chain: string, expressions: readonly Expression[], comment?: string): void {
    this.#message(NFT_MSG.newRule, NLM_F_CREATE | NLM_F_APPEND, `a rule of chain ${chain}`);
    this.text(1, table);
    this.text(2, chain);
    this.nest(4);
    for (const write of expressions) write(this);
    this.endNest();
    if (comment !== undefined) this.attribute(7, userdata(UDATA_RULE_COMMENT, comment));
    this.#end();
  }

  /** Deletes every rule of every chain of a table. */
  flushTable(table: string): void {
    this.#message(NFT_MSG.delRule, 0, `the rules of table ${table}`);
    this.text(1, table);
    this.#end();
  }

  /** Deletes every rule of a chain. */
  flushChain(table: string, chain: string): void {
    this.#message(NFT_MSG.delRule, 0, `the rules of chain ${chain}`);
    this.text(1, table);
    this.text(2, chain);
    this.#end();
  }

  addSet(table: string, set: SetDefinition): void {
    const { key, data } = set;
    const ranges = set.interval === true && key.length > 1;
    const flags =
      (data ? SET_FLAG.map : 0) |
      (set.interval ? SET_FLAG.interval : 0) |
      (ranges ? SET_FLAG.concatenated : 0) |
      (set.dynamic ? SET_FLAG.timeout | SET_FLAG.evaluated : 0);
    this.#message(NFT_MSG.newSet, NLM_F_CREATE, `${data ? 'map' : 'set'} ${set.name}`);
    this.text(1, table);
    this.text(2, set.name);
    this.be32(3, flags);
    this.be32(4, concatType(key));
    this.be32(5, key.length === 1 ? (key[0]?.length ?? 0) : concatLength(key));
    if (data === 'verdict') {
      this.be32(6, VERDICT_DATA);
      this.be32(7, 0);
    } else if (data) {
      this.be32(6, concatType(data));
      this.be32(7, data.length === 1 ? (data[0]?.length ?? 0) : concatLength(data));
    }
    this.be32(10, ++this.#setId);
    if (set.size !== undefined || ranges) {
      this.nest(9);
      if (set.size !== undefined) this.be32(1, set.size);
      if (ranges) {
        this.nest(2);
        for (const field of key) {
          this.nest(1);
          this.be32(1, field.length);
          this.endNest();
        }
        this.endNest();
      }
      this.endNest();
    }
    this.attribute(13, setUserdata(data));
    this.#end();
  }

  deleteSet(table: string, name: string): void {
    this.#message(NFT_MSG.delSet, 0, `set ${name}`);
    this.text(1, table);
    this.text(2, name);
    this.#end();
  }

  addElement(table: string, set: string, element: Element): void {
    this.#selectElements(NFT_MSG.newElements, NLM_F_CREATE, table, set);
    this.#element(element);
  }

  /** Refused (ENOENT, the whole transaction) when there is no such element. */
  deleteElement(table: string, set: string, element: Element): void {
    this.#selectElements(NFT_MSG.delElements, 0, table, set);
    this.#element(element);
  }

  /** Deletes an element if it is there; Linux 6.3 and later. */
  destroyElement(table: string, set: string, element: Element): void {
    this.#selectElements(NFT_MSG.destroyElements, 0, table, set);
    this.#element(element);
  }

  /**
   * The fast way for plain map elements in bulk: the same head words of the key again and again, one changing last
   * word, and data. `head` has the key's words but the last.
   */
  addMapElement(
    table: string,
    set: string,
    head: Uint32Array,
    lastKeyWord: number,
    data: Uint32Array,
    dataAt: number,
    dataWords: number,
  ): void {
    this.#selectElements(NFT_MSG.newElements, NLM_F_CREATE, table, set);
    const headWords = head.length;
    const keyBytes = headWords * 4 + 4;
    const count = headWords + dataWords + 6;
    const at = this.#elementRoom(count);
    const words = this.#words;
    let p = at;
    words[p++] = ((count * 4) | ((1 | NESTED) << 16)) >>> 0;
    words[p++] = ((keyBytes + 8) | ((1 | NESTED) << 16)) >>> 0;
    words[p++] = (keyBytes + 4) | (1 << 16);
    for (let i = 0; i < headWords; i++) words[p++] = head[i] ?? 0;
    words[p++] = lastKeyWord;
    words[p++] = ((dataWords * 4 + 8) | ((2 | NESTED) << 16)) >>> 0;
    words[p++] = (dataWords * 4 + 4) | (1 << 16);
    for (let i = 0; i < dataWords; i++) words[p++] = data[dataAt + i] ?? 0;
  }

  /** Closes the message of elements that is open; other messages do it themselves. */
  endElements(): void {
    const { open } = this.#elements ?? { open: -1 };
    this.#elements = null;
    if (open < 0) return;
    this.#words[open] = (((this.#at - open) * 4) | ((3 | NESTED) << 16)) >>> 0;
    this.#end();
  }

  // Attributes, for expressions.

  be32(type: number, value: number): void {
    this.#room(2);
    this.#words[this.#at++] = 8 | (type << 16);
    this.#words[this.#at++] = be32(value);
  }

  u8(type: number, value: number): void {
    this.#room(2);
    this.#words[this.#at++] = 5 | (type << 16);
    this.#words[this.#at++] = value & 0xff;
  }

  be64(type: number, value: number): void {
    this.#room(3);
    this.#words[this.#at++] = 12 | (type << 16);
    this.#words[this.#at++] = be32(Math.floor(value / 2 ** 32));
    this.#words[this.#at++] = be32(value >>> 0);
  }

  text(type: number, value: string): void {
    const length = value.length + 1;
    const count = (length + 3) >> 2;
    this.#room(count + 1);
    this.#words[this.#at] = (4 + length) | (type << 16);
    this.#words[this.#at + count] = 0;
    let p = (this.#at + 1) * 4;
    const end = p + count * 4;
    for (let i = 0; i < value.length; i++) this.#bytes[p++] = value.charCodeAt(i);
    this.#bytes.fill(0, p, end);
    this.#at += 1 + count;
  }

  attribute(type: number, value: Uint8Array): void {
    const count = (value.length + 3) >> 2;
    this.#room(count + 1);
    this.#words[this.#at] = (4 + value.length) | (type << 16);
    this.#words[this.#at + count] = count > 0 ? 0 : (this.#words[this.#at] ?? 0);
    this.#bytes.set(value, (this.#at + 1) * 4);
    this.#at += 1 + count;
  }

  wordsAttribute(type: number, value: ArrayLike<number>): void {
    this.#room(value.length + 1);
    this.#words[this.#at++] = (4 + value.length * 4) | (type << 16);
    for (let i = 0; i < value.length; i++) this.#words[this.#at++] = value[i] ?? 0;
  }

  nest(type: number): void {
    this.#room(1);
    this.#nests.push(this.#at);
    this.#words[this.#at++] = ((type | NESTED) << 16) >>> 0;
  }

  endNest(): void {
    const start = this.#nests.pop();
    if (start === undefined) throw new Error('no nest is open');
    this.#words[start] = ((this.#words[start] ?? 0) | ((this.#at - start) * 4)) >>> 0;
  }

  /** One expression of a rule. */
  expression(name: string, write: () => void): void {
    this.nest(1);
    this.text(1, name);
    this.nest(2);
    write();
    this.endNest();
    this.endNest();
  }

  #element(element: Element): void {
    const { key, keyEnd, data, verdict, comment } = element;
    const estimate = 120 + key.length * 2 + (data?.length ?? 0) + (comment?.length ?? 0);
    this.#at = this.#elementRoom(estimate);
    this.nest(1);
    if (element.intervalEnd) this.be32(3, 1);
    this.nest(1);
    this.wordsAttribute(1, key);
    this.endNest();
    if (keyEnd) {
      this.nest(10);
      this.wordsAttribute(1, keyEnd);
      this.endNest();
    }
    if (data) {
      this.nest(2);
      this.wordsAttribute(1, data);
      this.endNest();
    } else if (verdict) {
      this.nest(2);
      this.writeVerdict(verdict);
      this.endNest();
    }
    if (element.timeoutMs) this.be64(4, element.timeoutMs);
    if (element.expiresMs) this.be64(5, element.expiresMs);
    if (comment !== undefined) this.#comment(comment.slice(0, 120));
    this.endNest();
  }

  /** The userdata of an element. */
  #comment(comment: string): void {
    // Names of objects are ASCII: their bytes are written in place, since there is one comment a Service.
    const { length } = comment;
    const count = (length + 6) >> 2;
    const at = this.#at;
    this.#words[at] = (4 + length + 3) | (6 << 16);
    this.#words[at + count] = 0;
    const bytes = this.#bytes;
    let p = (at + 1) * 4;
    bytes[p++] = UDATA_ELEMENT_COMMENT;
    bytes[p++] = length + 1;
    for (let i = 0; i < length; i++) {
      const code = comment.charCodeAt(i);
      if (code > 127) {
        this.attribute(6, userdata(UDATA_ELEMENT_COMMENT, comment));
        return;
      }
      bytes[p++] = code;
    }
    bytes[p] = 0;
    this.#at = at + 1 + count;
  }

  /** The attribute NFTA_DATA_VERDICT. */
  writeVerdict(verdict: ElementVerdict | 'return' | { readonly jump: string }): void {
    this.nest(2);
    if (typeof verdict === 'string') this.be32(1, VERDICT[verdict] >>> 0);
    else if ('goto' in verdict) {
      this.be32(1, VERDICT.goto >>> 0);
      this.text(2, verdict.goto);
    } else {
      this.be32(1, VERDICT.jump >>> 0);
      this.text(2, verdict.jump);
    }
    this.endNest();
  }

  #selectElements(type: number, flags: number, table: string, set: string): void {
    const now = this.#elements;
    if (now && now.set === set && now.type === type && now.table === table) return;
    this.endElements();
    this.#elements = { type, flags, table, set, open: -1 };
  }

  /** Room for an element of at most `count` words; returns where it starts and counts it in. */
  #elementRoom(count: number): number {
    let elements = this.#elements;
    if (!elements) throw new Error('no set is selected');
    if (elements.open >= 0 && this.#at - elements.open + count > MAX_ELEMENTS_WORDS) {
      const again = { ...elements, open: -1 };
      this.endElements();
      this.#elements = elements = again;
    }
    if (elements.open < 0) {
      const { type, flags, table, set } = elements;
      this.#elements = null;
      this.#message(type, flags, `elements of ${set}`);
      this.text(1, table);
      this.text(2, set);
      this.#room(1);
      elements.open = this.#at++;
      this.#elements = elements;
    }
    this.#operations++;
    this.#room(count);
    const start = this.#at;
    this.#at += count;
    return start;
  }

  #message(type: number, flags: number, object: string): void {
    this.endElements();
    this.#operations++;
    this.#begin((NFNL_SUBSYS_NFTABLES << 8) | type, NLM_F_REQUEST | flags, this.#family, 0, object);
  }

  #begin(type: number, flags: number, family: number, resource: number, object: string): void {
    this.#room(5);
    const start = this.#at;
    const sequence = this.#sequence();
    this.#objects.set(sequence, object);
    if (this.#owner !== null) this.#owners.set(sequence, this.#owner);
    this.#words[start] = 0;
    this.#words[start + 1] = type | (flags << 16);
    this.#words[start + 2] = sequence;
    this.#words[start + 3] = 0;
    this.#words[start + 4] = (family | (resource << 16)) >>> 0;
    this.#at = start + 5;
    this.#messageStart = start;
    this.#lastMessage = start;
  }

  #end(): void {
    this.#words[this.#messageStart] = (this.#at - this.#messageStart) * 4;
  }

  #room(count: number): void {
    const needed = this.#at + count;
    if (needed <= this.#words.length) return;
    let length = this.#words.length * 2;
    while (length < needed) length *= 2;
    const words = new Uint32Array(length);
    words.set(this.#words.subarray(0, this.#at));
    this.#words = words;
    this.#bytes = new Uint8Array(words.buffer);
  }
}

/** What rule expressions look like on the wire: to compare with what the kernel shows (`isShownAs`). */
export function encodeExpressions(expressions: readonly Expression[]): Uint8Array {
  const batch = new NftBatch(0, () => 0, { capacity: 1024 });
  const start = batch.length;
  for (const write of expressions) write(batch);
  return batch.bytesFrom(start);
}

/** libnftnl's userdata: type, length, bytes; a comment ends with a zero. */
function userdata(type: number, comment: string): Uint8Array {
  const bytes = text.encode(comment);
  const out = new Uint8Array(bytes.length + 3);
  out[0] = type;
  out[1] = bytes.length + 1;
  out.set(bytes, 2);
  return out;
}

/** Without it `nft` prints numbers in the wrong byte order; 1.0.6 aborts on a data order for verdicts. */
function setUserdata(data: SetDefinition['data']): Uint8Array {
  const order = BYTE_ORDER.network;
  const key = [UDATA_SET_KEY_BYTE_ORDER, 4, order, 0, 0, 0];
  return Uint8Array.from(
    data === undefined || data === 'verdict' ? key : [...key, UDATA_SET_DATA_BYTE_ORDER, 4, order, 0, 0, 0],
  );
}
