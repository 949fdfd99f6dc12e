import { FAMILY_NAMES, type IPFamily } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import { type RawTable, REPLACE } from './connection.ts';
import { ERROR_NAME_ROOM, EXTENSION, HOOK_CHAINS, LAYOUT, STANDARD_BYTES } from './layout.ts';

/** A chain of a table that was read: its entries in order, with their offsets in the table. */
export interface Chain {
  readonly name: string;
  /** The number of a built-in chain's hook; null for a user's chain. */
  readonly hook: number | null;
  /** Where its first entry begins: for a user's chain, the entry that names it. */
  readonly start: number;
  /** The number of its first entry in the table. */
  readonly index: number;
  /** Where its first rule begins; jumps have this offset. */
  readonly first: number;
  /** Where its last entry begins: the policy, or RETURN. */
  last: number;
  /** Where its last entry ends. */
  end: number;
  /** Number of its entries. */
  count: number;
}

/** The structure of a table that was read. */
export interface ParsedTable {
  readonly raw: RawTable;
  /** The entries. */
  readonly bytes: Buffer;
  /** Built-in chains first; without the entry that ends the table. */
  readonly chains: readonly Chain[];
  /** The offsets of verdicts that are offsets themselves, in ascending order. */
  readonly jumps: Uint32Array;
  /** The same for verdicts that continue at the next rule. */
  readonly continuations: Uint32Array;
  /** Where the entry that ends the table begins. */
  readonly end: number;
}

/** "ERRO", then "R": the name of the target of entries that name a chain or end the table. */
const ERROR_START = 0x4f525245;
const ERROR_END = 0x52;

/** Finds the chains and jumps of a table. Throws FairleadError EINVAL for a table that libiptc would not make. */
export function parseTable(raw: RawTable, family: IPFamily): ParsedTable {
  const layout = LAYOUT[family];
  const { buffer, byteOffset } = raw.memory.bytes;
  const start = byteOffset + REPLACE.bytes;
  const { size } = raw;
  const bytes = Buffer.from(buffer, start, size);
  // Numbers of entries are aligned to their size.
  const words = new Uint16Array(buffer, start, size >> 1);
  const numbers = new Int32Array(buffer, start, size >> 2);
  const chains: Chain[] = [];
  const jumps = new Uint32Array(raw.count);
  const continuations = new Uint32Array(raw.count);
  let jumpCount = 0;
  let continuationCount = 0;
  let builtins = 0;
  let chain: Chain | null = null;

  const malformed = (why: string) =>
    new FairleadError(`the ${FAMILY_NAMES[family]} table ${raw.name} of iptables is malformed: ${why}`, {
      op: 'read iptables',
      code: 'EINVAL',
    });
  function open(name: string, hook: number | null, from: number, first: number, index: number): Chain {
    const opened = {
      name,
      hook,
      start: from,
      index,
      first,
      last: first,
      end: first,
      count: hook === null ? 1 : 0,
    };
    chains.push(opened);
    return opened;
  }

  let index = 0;
  let at = 0;
  for (; at < size; index++) {
    const target = at + (words[(at + layout.target) >> 1] ?? 0);
    const next = at + (words[(at + layout.next) >> 1] ?? 0);
    if (target < at + layout.bytes || next < target + STANDARD_BYTES || next > size || (next & 7) !== 0)
      throw malformed(`an entry at ${at}`);
    const initial = bytes[target + EXTENSION.name];
    if (initial === 0x45 && isError(bytes, target)) {
      if (next === size) break;
      chain = open(textOf(bytes, target + EXTENSION.bytes, ERROR_NAME_ROOM), null, at, next, index);
    } else {
      if (chain === null || chain.hook !== null) {
        const hook = raw.hookEntries.indexOf(at);
        const name = HOOK_CHAINS[hook];
        if (name !== undefined && (raw.validHooks & (1 << hook)) !== 0) {
          builtins++;
          chain = open(name, hook, at, at, index);
        }
      }
      if (chain === null) throw malformed(`a rule outside of chains at ${at}`);
      chain.last = at;
      chain.end = next;
      chain.count++;
      if (initial === 0) {
        const verdict = numbers[(target + EXTENSION.bytes) >> 2] ?? 0;
        if (verdict === next) continuations[continuationCount++] = target + EXTENSION.bytes;
        else if (verdict >= 0) jumps[jumpCount++] = target + EXTENSION.bytes;
      }
    }
    at = next;
  }
  if (at >= size || index + 1 !== raw.count) throw malformed(`it has not ${raw.count} entries`);
  // libiptc writes built-in chains first.
  const hooks = HOOK_CHAINS.filter((_, hook) => (raw.validHooks & (1 << hook)) !== 0).length;
  if (builtins !== hooks) throw malformed(`${builtins} built-in chains instead of ${hooks}`);
  if (chains.some(({ count }) => count === 0)) throw malformed('a chain without an end');
  return {
    raw,
    bytes,
    chains,
    jumps: jumps.subarray(0, jumpCount),
    continuations: continuations.subarray(0, continuationCount),
    end: at,
  };
}

/** Yields the offsets of a chain's rules, without the policy. */
export function* rulesOf(chain: Chain, bytes: Buffer, family: IPFamily): Generator<number> {
  const { next } = LAYOUT[family];
  for (let at = chain.first; at < chain.last; at += bytes.readUInt16LE(at + next)) yield at;
}

/** Returns a function that finds the name of a chain by the offset of jumps to it. */
export function chainNames({ chains }: ParsedTable): (first: number) => string | null {
  const names = new Map(chains.map(({ first, name }) => [first, name]));
  return (first) => names.get(first) ?? null;
}

function isError(bytes: Buffer, target: number): boolean {
  const name = target + EXTENSION.name;
  return bytes.readUInt32LE(name) === ERROR_START && bytes[name + 4] === ERROR_END && bytes[name + 5] === 0;
}

function textOf(bytes: Buffer, at: number, room: number): string {
  let end = at;
  while (end < at + room && bytes[end] !== 0) end++;
  return bytes.toString('latin1', at, end);
}
