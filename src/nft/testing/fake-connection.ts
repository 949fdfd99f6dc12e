import {
  eachAttribute,
  readAttributes,
  readText,
  readU16,
  readU32,
} from '../../kernel/netlink/attributes.ts';
import { NftBatch } from '../../kernel/nftables/batch.ts';
import { NftRefusal } from '../../kernel/nftables/connection.ts';
import { NFNL_SUBSYS_NFTABLES, NFPROTO, NFT_MSG, NFTA } from '../../kernel/nftables/constants.ts';
import { readElements } from '../../kernel/nftables/dump.ts';
import { hexOf } from '../encoding.ts';
import type { TableConnection } from '../table.ts';

const EEXIST = 17;

/**
 * A connection without a kernel: commits every transaction, unless configured otherwise, and records its
 * contents. Only the names of tables can be read back.
 */
export interface FakeConnection extends TableConnection {
  /** "+ element services 0a600001… : goto pick-2", "- chain x", in order, for each transaction. */
  readonly transactions: string[][];
  /** Errors of the next commits, in order. */
  failNext(...errors: readonly Error[]): void;
  /** Rejects messages (EEXIST) whose contents include this text. */
  refuse(text: string): void;
  readonly generations: (number | null)[];
}

export function createFakeConnection(): FakeConnection {
  let sequence = 1;
  let generation = 1;
  const errors: Error[] = [];
  const refused: string[] = [];
  const tables = new Set<string>();
  const transactions: string[][] = [];
  const generations: (number | null)[] = [];

  function commitSync(batch: NftBatch): void {
    const error = errors.shift();
    if (error) throw error;
    const messages = readMessages(batch.finish().bytes);
    const failed = messages.filter(({ lines }) =>
      lines.some((line) => refused.some((text) => line.startsWith('+') && line.includes(text))),
    );
    if (failed.length > 0) {
      const refusals = failed.map((one) => ({
        sequence: one.sequence,
        errno: EEXIST,
        offset: null,
        text: null,
      }));
      throw new NftRefusal('the kernel rejected it: EEXIST', 'EEXIST', 'it', refusals);
    }
    generation++;
    const lines = messages.flatMap((message) => message.lines);
    for (const line of lines) {
      const [sign, kind, name = ''] = line.split(' ');
      if (kind === 'table') {
        if (sign === '+') tables.add(name);
        else tables.delete(name);
      }
    }
    transactions.push(lines);
  }

  return {
    transactions,
    generations,
    failNext: (...next) => void errors.push(...next),
    refuse: (text) => void refused.push(text),
    batch(family, options = {}) {
      generations.push(options.generation ?? null);
      return new NftBatch(family, () => sequence++, options);
    },
    commitSync,
    commit: async (batch) => commitSync(batch),
    canOwnTables: () => false,
    generation: () => generation,
    tables: () => [...tables].map((name) => ({ name, flags: 0 })),
    chains: () => [],
    sets: () => [],
    rules: () => new Map(),
    elementMessages: () => [],
    elements: () => [],
  };
}

interface Message {
  readonly sequence: number;
  readonly lines: readonly string[];
}

function readMessages(bytes: Uint8Array): Message[] {
  const messages: Message[] = [];
  for (let at = 0; at + 16 <= bytes.length; ) {
    const length = readU32(bytes, at);
    const type = readU16(bytes, at + 4);
    const payload = bytes.subarray(at + 16, at + length);
    if (type >> 8 === NFNL_SUBSYS_NFTABLES && payload[0] === NFPROTO.ipv4) {
      messages.push({ sequence: readU32(bytes, at + 8), lines: linesOf(type & 0xff, payload) });
    }
    at += (length + 3) & ~3;
  }
  return messages;
}

function linesOf(type: number, payload: Uint8Array): string[] {
  const attributes = readAttributes(payload.subarray(4));
  const text = (id: number) => {
    const value = attributes.get(id);
    return value ? readText(value) : '';
  };
  switch (type) {
    case NFT_MSG.newTable:
    case NFT_MSG.delTable:
      return [`${type === NFT_MSG.newTable ? '+' : '-'} table ${text(NFTA.table.name)}`];
    case NFT_MSG.newChain:
      return [`+ chain ${text(NFTA.chain.name)}`];
    case NFT_MSG.newRule: {
      const rule = attributes.get(NFTA.rule.expressions) ?? new Uint8Array(0);
      return [`+ rule ${text(NFTA.rule.chain)}, ${[...eachAttribute(rule)].length} expressions`];
    }
    case NFT_MSG.delRule:
      return [`- rules ${text(NFTA.rule.chain)}`.trimEnd()];
    case NFT_MSG.newSet:
      return [`+ set ${text(NFTA.set.name)}`];
    case NFT_MSG.newElements:
    case NFT_MSG.delElements: {
      const sign = type === NFT_MSG.newElements ? '+' : '-';
      const set = text(NFTA.setElements.set);
      return readElements({ type, flags: 0, sequence: 0, payload }).map(
        ({ key, data, verdict, keyEnd, intervalEnd }) => {
          const end = intervalEnd ? ' end' : keyEnd ? `-${hexOf(keyEnd)}` : '';
          const value = verdict ?? (data && hexOf(data));
          return `${sign} element ${set} ${hexOf(key)}${end}${value === null ? '' : ` : ${value}`}`;
        },
      );
    }
    default:
      return [`message ${type}`];
  }
}
