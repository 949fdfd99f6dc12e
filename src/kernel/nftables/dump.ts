import {
  type Attributes,
  eachAttribute,
  NLA_F_NESTED,
  readAttributes,
  readBe32,
  readBe64,
  readText,
  readU16,
} from '../netlink/attributes.ts';
import type { NetlinkMessage } from '../netlink/socket.ts';
import { ELEMENT_INTERVAL_END, NFTA, UDATA_RULE_COMMENT, VERDICT } from './constants.ts';

export interface SetDump {
  readonly name: string;
  readonly flags: number;
  /** 0: without limit. */
  readonly size: number;
  readonly keyLength: number;
}

export interface ChainDump {
  readonly name: string;
  /** Null: rules jump to it. `number`: as in HOOK. */
  readonly hook: {
    readonly number: number;
    readonly priority: number;
    /** "filter", "nat" or "route". */
    readonly type: string;
  } | null;
  readonly policy: 'accept' | 'drop';
}

export interface RuleDump {
  readonly chain: string;
  readonly handle: number;
  readonly expressions: Uint8Array;
  readonly comment: string | null;
}

export interface DumpedElement {
  readonly key: Uint8Array;
  readonly keyEnd: Uint8Array | null;
  readonly data: Uint8Array | null;
  /** "drop", "goto chain", … */
  readonly verdict: string | null;
  readonly intervalEnd: boolean;
  readonly timeoutMs: number;
  readonly expiresMs: number;
  readonly comment: string | null;
  /** Packets that found the element of a counted set; else 0. */
  readonly packets: number;
}

/** Returns a dumped object's attributes, and the text of one of them. */
export function readNamed(message: NetlinkMessage, type: number): { name: string; attributes: Attributes } {
  const attributes = readAttributes(message.payload.subarray(4));
  const name = attributes.get(type);
  return { name: name ? readText(name) : '', attributes };
}

/** Returns the table in a message of a dump; `family` as in nfgenmsg. */
export function readTable(message: NetlinkMessage): {
  readonly family: number;
  readonly name: string;
  readonly flags: number;
} {
  const { name, attributes } = readNamed(message, NFTA.table.name);
  const flags = attributes.get(NFTA.table.flags);
  return { family: message.payload[0] ?? 0, name, flags: flags ? readBe32(flags) : 0 };
}

/** Returns the set in a message of a dump. */
export function readSet(message: NetlinkMessage): SetDump {
  const { name, attributes } = readNamed(message, NFTA.set.name);
  const flags = attributes.get(NFTA.set.flags);
  const description = attributes.get(NFTA.set.description);
  const size = description && readAttributes(description).get(NFTA.setDescription.size);
  const key = attributes.get(NFTA.set.keyLength);
  return {
    name,
    flags: flags ? readBe32(flags) : 0,
    size: size ? readBe32(size) : 0,
    keyLength: key ? readBe32(key) : 0,
  };
}

/** Returns the chain in a message of a dump. */
export function readChain(message: NetlinkMessage): ChainDump {
  const { name, attributes } = readNamed(message, NFTA.chain.name);
  const nest = attributes.get(NFTA.chain.hook);
  const hook = nest && readAttributes(nest);
  const priority = hook?.get(NFTA.hook.priority);
  const number = hook?.get(NFTA.hook.number);
  const policy = attributes.get(NFTA.chain.policy);
  const type = attributes.get(NFTA.chain.type);
  return {
    name,
    hook: number
      ? {
          number: readBe32(number),
          priority: priority ? readBe32(priority) | 0 : 0,
          type: type ? readText(type) : 'filter',
        }
      : null,
    policy: policy && readBe32(policy) === VERDICT.drop ? 'drop' : 'accept',
  };
}

/** Returns the rule in a message of a dump. */
export function readRule(message: NetlinkMessage): RuleDump {
  const { name, attributes } = readNamed(message, NFTA.rule.chain);
  const handle = attributes.get(NFTA.rule.handle);
  const userdata = attributes.get(NFTA.rule.userdata);
  const isComment = userdata?.[0] === UDATA_RULE_COMMENT;
  return {
    chain: name,
    handle: handle ? Number(readBe64(handle)) : 0,
    expressions: attributes.get(NFTA.rule.expressions) ?? new Uint8Array(0),
    comment: userdata && isComment ? readText(userdata.subarray(2)) : null,
  };
}

/** Returns the elements in one message of a dump or an event. */
export function readElements(message: NetlinkMessage): DumpedElement[] {
  const list = readAttributes(message.payload.subarray(4)).get(NFTA.setElements.elements);
  if (!list) return [];
  return [...eachAttribute(list)].map(([, bytes]) => readElement(bytes));
}

function readElement(bytes: Uint8Array): DumpedElement {
  const attributes = readAttributes(bytes);
  const value = (type: number) => {
    const nest = attributes.get(type);
    return nest ? readAttributes(nest) : null;
  };
  const at = NFTA.setElement;
  const data = value(at.data);
  const verdict = data?.get(NFTA.data.verdict);
  const timeout = attributes.get(at.timeout);
  const expires = attributes.get(at.expiration);
  const flags = attributes.get(at.flags);
  const comment = attributes.get(at.userdata);
  const expression = attributes.get(at.expression);
  return {
    key: value(at.key)?.get(NFTA.data.value) ?? new Uint8Array(0),
    keyEnd: value(at.keyEnd)?.get(NFTA.data.value) ?? null,
    data: data?.get(NFTA.data.value) ?? null,
    verdict: verdict ? verdictText(readAttributes(verdict)) : null,
    intervalEnd: flags ? (readBe32(flags) & ELEMENT_INTERVAL_END) !== 0 : false,
    timeoutMs: timeout ? Number(readBe64(timeout)) : 0,
    expiresMs: expires ? Number(readBe64(expires)) : 0,
    comment: comment && comment[0] === 0 ? readText(comment.subarray(2)) : null,
    packets: expression ? packetsOf(expression) : 0,
  };
}

function verdictText(attributes: Attributes): string {
  const code = (readBe32(attributes.get(NFTA.verdict.code) ?? new Uint8Array(4)) | 0) as number;
  const chain = attributes.get(NFTA.verdict.chain);
  const name = Object.entries(VERDICT).find(([, value]) => value === code)?.[0] ?? String(code);
  return chain ? `${name} ${readText(chain)}` : name;
}

/**
 * Returns true if the dumped expressions contain every attribute that was written, with the same value. The
 * kernel adds attributes (defaults) and lists expressions in order.
 */
export function isShownAs(written: Uint8Array, shown: Uint8Array): boolean {
  const ours = [...eachAttribute(written)];
  const theirs = [...eachAttribute(shown)];
  return ours.length === theirs.length && ours.every(([, bytes], i) => sameExpression(bytes, theirs[i]?.[1]));
}

/** Returns the packets that the counters among a rule's expressions have counted. */
export function readCounter(expressions: Uint8Array): number {
  let packets = 0;
  for (const [, bytes] of eachAttribute(expressions)) packets += packetsOf(bytes);
  return packets;
}

/** Returns the packets that an expression has counted; 0 if it is not a counter. */
function packetsOf(bytes: Uint8Array): number {
  const expression = readAttributes(bytes);
  const name = expression.get(NFTA.expression.name);
  if (!name || readText(name) !== 'counter') return 0;
  const data = readAttributes(expression.get(NFTA.expression.data) ?? new Uint8Array(0));
  const value = data.get(NFTA.counter.packets);
  return value ? Number(new DataView(value.buffer, value.byteOffset, 8).getBigUint64(0)) : 0;
}

/** NFTA_EXPR_NAME, NFTA_EXPR_DATA. */
function sameExpression(written: Uint8Array, shown: Uint8Array | undefined): boolean {
  if (!shown) return false;
  const ours = readAttributes(written);
  const theirs = readAttributes(shown);
  const name = ours.get(NFTA.expression.name);
  const shownName = theirs.get(NFTA.expression.name);
  if (!name || !shownName || readText(name) !== readText(shownName)) return false;
  return containsAttributes(
    theirs.get(NFTA.expression.data) ?? new Uint8Array(0),
    ours.get(NFTA.expression.data) ?? new Uint8Array(0),
  );
}

/** Returns true if `shown` has every attribute of `written`; the kernel omits the nested flag in dumps. */
function containsAttributes(shown: Uint8Array, written: Uint8Array): boolean {
  const theirs = readAttributes(shown);
  for (let at = 0; at + 4 <= written.length; ) {
    const length = readU16(written, at);
    const type = readU16(written, at + 2);
    if (length < 4) return false;
    const value = written.subarray(at + 4, at + length);
    const other = theirs.get(type & ~NLA_F_NESTED);
    if (!other) return false;
    if (type & NLA_F_NESTED ? !containsAttributes(other, value) : Buffer.compare(value, other) !== 0)
      return false;
    at += (length + 3) & ~3;
  }
  return true;
}
