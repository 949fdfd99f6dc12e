import { NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST } from '../netlink/socket.ts';
import { AttributeWriter, be16, NESTED } from './attribute-writer.ts';
import {
  BATCH_GENERATION,
  concatLength,
  concatType,
  type DataType,
  HOOK,
  type Hook,
  NFNL_MSG_BATCH_BEGIN,
  NFNL_MSG_BATCH_END,
  NFNL_SUBSYS_NFTABLES,
  NFT_MSG,
  NFTA,
  SET_FLAG,
  UDATA_RULE_COMMENT,
  VERDICT,
  VERDICT_DATA,
} from './constants.ts';
import {
  type Element,
  wordsOfElement,
  wordsOfKeyElement,
  wordsOfMapElement,
  writeElement,
  writeKeyElement,
  writeMapElement,
} from './element.ts';
import { byteOrderUserdata, commentUserdata } from './userdata.ts';

export type { Element, ElementVerdict } from './element.ts';

/** Part of a rule: writes one or more expressions. */
export type Expression = (out: AttributeWriter) => void;

export interface SetDefinition {
  readonly name: string;
  readonly key: readonly DataType[];
  /** Absent: a set. `verdict`: a verdict map. */
  readonly data?: readonly DataType[] | 'verdict';
  /** Maximum number of elements; the kernel then uses a hash of fixed size, which fills twice as fast. */
  readonly size?: number;
  readonly interval?: boolean;
  /** Elements may expire, and rules may add and update them. */
  readonly dynamic?: boolean;
  /** Each element counts the packets that find it. */
  readonly counted?: boolean;
}

export interface BaseChain {
  readonly type: 'nat' | 'filter' | 'route';
  readonly hook: Hook;
  readonly priority: number;
  /** The device of a chain of the family netdev. */
  readonly device?: string;
  readonly policy?: 'accept' | 'drop';
}

/** Attributes have 16-bit lengths; a longer list of elements is split. */
const MAX_ELEMENTS_WORDS = 16_200;

/**
 * One nf_tables transaction: everything in it takes effect at once or not at all.
 *
 * Objects are referred to by name, never by transaction id, so that written expressions can be compared
 * with dumped ones.
 */
export class NftBatch {
  readonly #out: AttributeWriter;
  #messageStart = 0;
  #lastMessage = -1;
  readonly #sequence: () => number;
  /** The sequence numbers of the messages, and what each writes; two arrays cost a small transaction less than a Map. */
  readonly #sequences: number[] = [];
  readonly #objects: string[] = [];
  #owners: Map<number, string> | null = null;
  #owner: string | null = null;
  #setId = 0;
  #operations = 0;
  #family: number;
  #elements: { type: number; flags: number; table: string; set: string; open: number } | null = null;

  /**
   * `sequence` returns new sequence numbers; `generation`: commit only if the ruleset still has this
   * number.
   */
  constructor(
    family: number,
    sequence: () => number,
    options: { generation?: number; capacity?: number } = {},
  ) {
    this.#family = family;
    this.#sequence = sequence;
    this.#out = new AttributeWriter(options.capacity ?? 8192);
    this.#begin(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, be16(NFNL_SUBSYS_NFTABLES), 'the transaction');
    if (options.generation !== undefined) this.#out.be32(BATCH_GENERATION, options.generation);
    this.#end();
    this.#lastMessage = -1;
  }

  /** Number of messages and elements written. */
  get operations(): number {
    return this.#operations;
  }

  /** Reserves room for about this many more bytes, which avoids copies when the buffer grows. */
  reserve(bytes: number): void {
    this.#out.room((bytes + 3) >> 2);
  }

  get empty(): boolean {
    return this.#lastMessage < 0 && this.#elements === null;
  }

  /** Ends the transaction. Returns its bytes and the sequence number of the acknowledged message. */
  finish(): { readonly bytes: Uint8Array; readonly last: number } {
    this.endElements();
    const at = Math.max(this.#lastMessage, 0);
    const { words } = this.#out;
    words[at + 1] = (words[at + 1] ?? 0) | (NLM_F_ACK << 16);
    const last = words[at + 2] ?? 0;
    this.#begin(NFNL_MSG_BATCH_END, NLM_F_REQUEST, 0, be16(NFNL_SUBSYS_NFTABLES), 'the transaction');
    this.#end();
    return { bytes: this.#out.written(), last };
  }

  /** Returns the object that the message with this sequence number writes, in the words of `nft`. */
  object(sequence: number): string {
    return this.#objects[this.#sequences.indexOf(sequence)] ?? 'an object';
  }

  /**
   * Writes subsequent changes for `owner`, in separate messages, so that a refusal identifies the owner;
   * null: for no owner. Makes a transaction longer.
   */
  writeFor(owner: string | null): void {
    this.endElements();
    this.#owner = owner;
  }

  /** Returns the owner that the message with this sequence number was written for. */
  owner(sequence: number): string | null {
    return this.#owners?.get(sequence) ?? null;
  }

  addTable(name: string, flags = 0): void {
    this.#message(NFT_MSG.newTable, NLM_F_CREATE, `table ${name}`);
    this.#out.text(NFTA.table.name, name);
    this.#out.be32(NFTA.table.flags, flags);
    this.#end();
  }

  deleteTable(name: string): void {
    this.#message(NFT_MSG.delTable, 0, `table ${name}`);
    this.#out.text(NFTA.table.name, name);
    this.#end();
  }

  addChain(table: string, name: string, base?: BaseChain): void {
    const out = this.#out;
    this.#message(NFT_MSG.newChain, NLM_F_CREATE, `chain ${name}`);
    out.text(NFTA.chain.table, table);
    out.text(NFTA.chain.name, name);
    if (base) {
      out.nest(NFTA.chain.hook);
      out.be32(NFTA.hook.number, HOOK[base.hook]);
      out.be32(NFTA.hook.priority, base.priority >>> 0);
      if (base.device !== undefined) out.text(NFTA.hook.device, base.device);
      out.endNest();
      out.be32(NFTA.chain.policy, base.policy === 'drop' ? VERDICT.drop : VERDICT.accept);
      out.text(NFTA.chain.type, base.type);
    }
    this.#end();
  }

  deleteChain(table: string, name: string): void {
    this.#message(NFT_MSG.delChain, 0, `chain ${name}`);
    this.#out.text(NFTA.chain.table, table);
    this.#out.text(NFTA.chain.name, name);
    this.#end();
  }

  /** Appends a rule. */
  addRule(table: string, chain: string, expressions: readonly Expression[], comment?: string): void {
    const out = this.#out;
    this.#message(NFT_MSG.newRule, NLM_F_CREATE | NLM_F_APPEND, `a rule of chain ${chain}`);
    out.text(NFTA.rule.table, table);
    out.text(NFTA.rule.chain, chain);
    out.nest(NFTA.rule.expressions);
    for (const write of expressions) write(out);
    out.endNest();
    if (comment !== undefined)
      out.attribute(NFTA.rule.userdata, commentUserdata(UDATA_RULE_COMMENT, comment));
    this.#end();
  }

  /** Deletes every rule of every chain of a table. */
  flushTable(table: string): void {
    this.#message(NFT_MSG.delRule, 0, `the rules of table ${table}`);
    this.#out.text(NFTA.rule.table, table);
    this.#end();
  }

  /** Deletes every rule of a chain. */
  flushChain(table: string, chain: string): void {
    this.#message(NFT_MSG.delRule, 0, `the rules of chain ${chain}`);
    this.#out.text(NFTA.rule.table, table);
    this.#out.text(NFTA.rule.chain, chain);
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
    const out = this.#out;
    this.#message(NFT_MSG.newSet, NLM_F_CREATE, `${data ? 'map' : 'set'} ${set.name}`);
    const at = NFTA.set;
    out.text(at.table, table);
    out.text(at.name, set.name);
    out.be32(at.flags, flags);
    out.be32(at.keyType, concatType(key));
    out.be32(at.keyLength, key.length === 1 ? (key[0]?.length ?? 0) : concatLength(key));
    if (data === 'verdict') {
      out.be32(at.dataType, VERDICT_DATA);
      out.be32(at.dataLength, 0);
    } else if (data) {
      out.be32(at.dataType, concatType(data));
      out.be32(at.dataLength, data.length === 1 ? (data[0]?.length ?? 0) : concatLength(data));
    }
    out.be32(at.id, ++this.#setId);
    if (set.size !== undefined || ranges) {
      out.nest(at.description);
      if (set.size !== undefined) out.be32(NFTA.setDescription.size, set.size);
      if (ranges) {
        out.nest(NFTA.setDescription.concatenation);
        for (const field of key) {
          out.nest(NFTA.list.element);
          out.be32(NFTA.setField.length, field.length);
          out.endNest();
        }
        out.endNest();
      }
      out.endNest();
    }
    out.attribute(at.userdata, byteOrderUserdata(data !== undefined && data !== 'verdict'));
    if (set.counted) {
      out.nest(at.expression);
      out.text(NFTA.expression.name, 'counter');
      out.nest(NFTA.expression.data);
      out.endNest();
      out.endNest();
    }
    this.#end();
  }

  deleteSet(table: string, name: string): void {
    this.#message(NFT_MSG.delSet, 0, `set ${name}`);
    this.#out.text(NFTA.set.table, table);
    this.#out.text(NFTA.set.name, name);
    this.#end();
  }

  addElement(table: string, set: string, element: Element): void {
    this.#selectElements(NFT_MSG.newElements, NLM_F_CREATE, table, set);
    this.#writeElement(element);
  }

  /** Deletes an element. The kernel refuses the whole transaction (ENOENT) if it does not exist. */
  deleteElement(table: string, set: string, element: Element): void {
    this.#selectElements(NFT_MSG.delElements, 0, table, set);
    this.#writeElement(element);
  }

  /** Deletes an element if it exists; Linux 6.3 and later. */
  destroyElement(table: string, set: string, element: Element): void {
    this.#selectElements(NFT_MSG.destroyElements, 0, table, set);
    this.#writeElement(element);
  }

  /**
   * Adds plain map elements in bulk, the fast path: `head` contains all words of the keys except the last,
   * which is the element's number, `from` up to `to`. The elements' data, `dataWords` words each, are in
   * `data`, those of element 0 at `dataAt`.
   */
  addMapElements(
    table: string,
    set: string,
    head: Uint32Array,
    from: number,
    to: number,
    data: Uint32Array,
    dataAt: number,
    dataWords: number,
  ): void {
    const size = wordsOfMapElement(head.length, dataWords);
    for (let i = from; i < to; ) {
      this.#selectElements(NFT_MSG.newElements, NLM_F_CREATE, table, set);
      const end = i + this.#elementRoom(size, to - i);
      for (; i < end; i++) writeMapElement(this.#out, head, i, data, dataAt + i * dataWords, dataWords);
    }
  }

  /**
   * Adds set elements in bulk that consist of a key alone, the fast path: `keyWords` words of `words` from
   * `at` on.
   */
  addKey(table: string, set: string, words: Uint32Array, at: number, keyWords: number): void {
    this.#selectElements(NFT_MSG.newElements, NLM_F_CREATE, table, set);
    this.#elementRoom(wordsOfKeyElement(keyWords));
    writeKeyElement(this.#out, words, at, keyWords);
  }

  /** Deletes the element with this key, the fast path of `deleteElement`: `keyWords` words of `words` from `at` on. */
  deleteKey(table: string, set: string, words: Uint32Array, at: number, keyWords: number): void {
    this.#selectElements(NFT_MSG.delElements, 0, table, set);
    this.#elementRoom(wordsOfKeyElement(keyWords));
    writeKeyElement(this.#out, words, at, keyWords);
  }

  /** Closes the open message of elements; other messages do so implicitly. */
  endElements(): void {
    const { open } = this.#elements ?? { open: -1 };
    this.#elements = null;
    if (open < 0) return;
    const out = this.#out;
    out.words[open] = (((out.at - open) * 4) | ((NFTA.setElements.elements | NESTED) << 16)) >>> 0;
    this.#end();
  }

  #writeElement(element: Element): void {
    this.#elementRoom(wordsOfElement(element));
    writeElement(this.#out, element);
  }

  #selectElements(type: number, flags: number, table: string, set: string): void {
    const now = this.#elements;
    if (now && now.set === set && now.type === type && now.table === table) return;
    this.endElements();
    this.#elements = { type, flags, table, set, open: -1 };
  }

  /**
   * Makes room for elements of at most `size` words each and counts them. Returns their number: at most
   * `wanted`, fewer if the open message has no room for all.
   */
  #elementRoom(size: number, wanted = 1): number {
    const out = this.#out;
    let elements = this.#elements;
    if (!elements) throw new Error('no set is selected');
    if (elements.open >= 0 && out.at - elements.open + size > MAX_ELEMENTS_WORDS) {
      const again = { ...elements, open: -1 };
      this.endElements();
      this.#elements = elements = again;
    }
    if (elements.open < 0) {
      const { type, flags, table, set } = elements;
      this.#elements = null;
      this.#message(type, flags, `elements of ${set}`);
      out.text(NFTA.setElements.table, table);
      out.text(NFTA.setElements.set, set);
      out.room(1);
      elements.open = out.at++;
      this.#elements = elements;
    }
    const rest = MAX_ELEMENTS_WORDS - (out.at - elements.open);
    const count = wanted * size <= rest ? wanted : Math.max(1, Math.floor(rest / size));
    this.#operations += count;
    out.room(count * size);
    return count;
  }

  #message(type: number, flags: number, object: string): void {
    this.endElements();
    this.#operations++;
    this.#begin((NFNL_SUBSYS_NFTABLES << 8) | type, NLM_F_REQUEST | flags, this.#family, 0, object);
  }

  #begin(type: number, flags: number, family: number, resource: number, object: string): void {
    const out = this.#out;
    out.room(5);
    const { words, at } = out;
    const sequence = this.#sequence();
    this.#sequences.push(sequence);
    this.#objects.push(object);
    if (this.#owner !== null) {
      this.#owners ??= new Map();
      this.#owners.set(sequence, this.#owner);
    }
    words[at] = 0;
    words[at + 1] = type | (flags << 16);
    words[at + 2] = sequence;
    words[at + 3] = 0;
    words[at + 4] = (family | (resource << 16)) >>> 0;
    out.at = at + 5;
    this.#messageStart = at;
    this.#lastMessage = at;
  }

  #end(): void {
    const { words, at } = this.#out;
    words[this.#messageStart] = (at - this.#messageStart) * 4;
  }
}

/** Returns the netlink encoding of rule expressions, to compare with the kernel's (`isShownAs`). */
export function encodeExpressions(expressions: readonly Expression[]): Uint8Array {
  const out = new AttributeWriter(1024);
  for (const write of expressions) write(out);
  return out.written().slice();
}
