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
import { ELEMENT_INTERVAL_END, NFTA, VERDICT } from './constants.ts';

export interface SetDump {
  readonly name: string;
  readonly flags: number;
  /** 0: without limit. */
  readonly size: number;
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
