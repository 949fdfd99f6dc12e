import { randomInt } from 'node:crypto';
import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { errnoName } from '../libc.ts';
import { MessageWriter, readAttributes, readBe32 } from '../netlink/attributes.ts';
import {
  NETLINK_NETFILTER,
  type NetlinkMessage,
  type NetlinkRefusal,
  NetlinkSocket,
} from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import { NftBatch } from './batch.ts';
import { NFNL_SUBSYS_NFTABLES, NFT_MSG, NFTA, TABLE_FLAG } from './constants.ts';
import { type DumpedElement, readElements, readNamed, readSet, type SetDump } from './dump.ts';
import { type QueueForm, queue } from './expressions.ts';

const DONE: Promise<void> = Promise.resolve();
const messageType = (message: number) => (NFNL_SUBSYS_NFTABLES << 8) | message;
/** A dump of elements is repeated if a commit interrupted it, at most this often. */
const DUMP_ATTEMPTS = 10;

/** A transaction that the kernel refused; none of it took effect. */
export class NftRefusal extends FairleadError {
  readonly refusals: readonly NetlinkRefusal[];

  constructor(
    message: string,
    code: string,
    object: string,
    refusals: readonly NetlinkRefusal[],
    hint: string | null = null,
  ) {
    super(message, {
      op: 'program nf_tables',
      code: errorCode(code),
      object,
      ...(hint === null ? {} : { hint }),
    });
    this.refusals = refusals;
  }
}

/**
 * A netlink socket to nf_tables in one network namespace. A table with an owner belongs to the socket that
 * created it.
 */
export class NftConnection {
  readonly #socket: NetlinkSocket;
  /**
   * Events carry the sequence number of the request that caused them: a separate range distinguishes ours.
   */
  readonly #firstSequence = 0x40000000 + randomInt(0x30000000);
  #sequence = this.#firstSequence;
  #canOwn: boolean | null = null;

  /** `netns`: default the namespace of this thread. */
  constructor(netns?: NetnsRef) {
    this.#socket = new NetlinkSocket({
      protocol: NETLINK_NETFILTER,
      netns,
    });
  }

  batch(family: number, options: { generation?: number; capacity?: number } = {}): NftBatch {
    return new NftBatch(family, () => this.#sequence++, options);
  }

  /** Returns true if this connection caused an event, given the event's sequence number. */
  wrote(sequence: number): boolean {
    return sequence >= this.#firstSequence && sequence < this.#sequence;
  }

  /**
   * Commits a transaction; large ones on a thread. Throws NftRefusal naming the object that the kernel
   * refused, with the errno's name as code: ERESTART if the ruleset has another generation by now, ENFILE
   * if a set is full, EPERM if the table has another owner.
   */
  commit(batch: NftBatch): Promise<void> {
    if (batch.empty) return DONE;
    const { bytes, last } = batch.finish();
    if (!this.#socket.isImmediate(bytes.length)) return this.#commitLater(batch, bytes, last);
    // Most changes: each further asynchronous call costs a microsecond, a tenth of the kernel's time.
    try {
      check(batch, this.#socket.batchSync(bytes, last));
      return DONE;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async #commitLater(batch: NftBatch, bytes: Uint8Array, last: number): Promise<void> {
    check(batch, await this.#socket.batch(bytes, last));
  }

  /** Works like `commit`, blocking while the kernel works. */
  commitSync(batch: NftBatch): void {
    if (batch.empty) return;
    const { bytes, last } = batch.finish();
    check(batch, this.#socket.batchSync(bytes, last));
  }

  /** Returns the number of the last transaction in this namespace, by any process. */
  generation(): number {
    const [reply] = this.#socket.request(messageType(NFT_MSG.getGeneration), 0, new Uint8Array(4));
    const id = reply && readAttributes(reply.payload.subarray(4)).get(NFTA.generation.id);
    if (!id)
      throw new FairleadError('the kernel did not report its nf_tables generation', {
        op: 'read nf_tables',
        code: 'EPROTO',
      });
    return readBe32(id);
  }

  /** Returns names and flags of a family's tables. */
  tables(family: number): { readonly name: string; readonly flags: number }[] {
    return this.#dump(NFT_MSG.getTable, family, []).map((message) => {
      const { name, attributes } = readNamed(message, NFTA.table.name);
      const flags = attributes.get(NFTA.table.flags);
      return { name, flags: flags ? readBe32(flags) : 0 };
    });
  }

  /** Returns the names of a table's chains. */
  chains(family: number, table: string): string[] {
    return this.#dump(NFT_MSG.getChain, family, [[NFTA.chain.table, table]])
      .filter((message) => readNamed(message, NFTA.chain.table).name === table)
      .map((message) => readNamed(message, NFTA.chain.name).name);
  }

  /**
   * Returns the expressions of a table's rules, or of one chain's, in the kernel's encoding, by chain and
   * in order.
   */
  rules(family: number, table: string, only: string | null = null): Map<string, Uint8Array[]> {
    const rules = new Map<string, Uint8Array[]>();
    const filter: [number, string][] = [[NFTA.rule.table, table]];
    if (only !== null) filter.push([NFTA.rule.chain, only]);
    for (const message of this.#dump(NFT_MSG.getRule, family, filter)) {
      const { name, attributes } = readNamed(message, NFTA.rule.table);
      if (name !== table) continue;
      const chain = readNamed(message, NFTA.rule.chain).name;
      const list = rules.get(chain);
      const expressions = attributes.get(NFTA.rule.expressions) ?? new Uint8Array(0);
      if (list) list.push(expressions);
      else rules.set(chain, [expressions]);
    }
    return rules;
  }

  /** Returns a table's sets and maps, without elements. */
  sets(family: number, table: string): SetDump[] {
    return this.#dump(NFT_MSG.getSet, family, [[NFTA.set.table, table]])
      .filter((message) => readNamed(message, NFTA.set.table).name === table)
      .map(readSet);
  }

  /**
   * Returns the elements of a set. The kernel does not flag a dump that a commit interrupted, but numbers
   * each part with the generation: if the numbers differ, the dump is repeated.
   */
  elements(family: number, table: string, set: string): DumpedElement[] {
    return this.elementMessages(family, table, set).flatMap(readElements);
  }

  /** Like `elements`, as messages of the kernel with some 30 elements each, for `readElements`. */
  elementMessages(family: number, table: string, set: string): NetlinkMessage[] {
    for (let attempt = 1; ; attempt++) {
      const messages = this.#dump(NFT_MSG.getElements, family, [
        [NFTA.setElements.table, table],
        [NFTA.setElements.set, set],
      ]);
      const generations = new Set(
        messages.map(({ payload }) => ((payload[2] ?? 0) << 8) | (payload[3] ?? 0)),
      );
      if (generations.size <= 1 || attempt === DUMP_ATTEMPTS) return messages;
    }
  }

  /**
   * Returns true if tables can belong to this process and outlive it (Linux 6.9). The first call runs a
   * transaction.
   */
  canOwnTables(family: number): boolean {
    this.#canOwn ??= this.#probeOwnership(family);
    return this.#canOwn;
  }

  /** Returns how rules can hand packets to a queue; null: this kernel has neither form. Each call runs a transaction. */
  queueForm(family: number): QueueForm | null {
    for (const form of ['queue', 'NFQUEUE'] as const) {
      const has = this.#probe(family, 0, (batch, table) => {
        batch.addChain(table, 'chain');
        batch.addRule(table, 'chain', [queue(0, form)]);
      });
      if (has) return form;
    }
    return null;
  }

  #probeOwnership(family: number): boolean {
    return this.#probe(family, TABLE_FLAG.owner | TABLE_FLAG.persist);
  }

  /** Returns true if the kernel accepts a table with these flags and contents, which it deletes in the same transaction. */
  #probe(family: number, flags: number, fill: (batch: NftBatch, table: string) => void = () => {}): boolean {
    const name = `fairlead-probe-${process.pid}`;
    const batch = this.batch(family);
    batch.addTable(name, flags);
    fill(batch, name);
    batch.deleteTable(name);
    try {
      this.commitSync(batch);
      return true;
    } catch (error) {
      if (hasCode(error, 'EOPNOTSUPP', 'EINVAL', 'ENOENT')) return false;
      throw error;
    }
  }

  close(): void {
    this.#socket.close();
  }

  #dump(message: number, family: number, names: readonly (readonly [number, string])[]): NetlinkMessage[] {
    const writer = new MessageWriter(64);
    writer.u8(family).u8(0).u16(0);
    for (const [type, name] of names) writer.attributeText(type, name);
    return this.#socket.dump(messageType(message), writer.bytes(), names.map(([, name]) => name).join(' '));
  }
}

/**
 * Lists the first objects of a kind, about `max`, on a connection of its own: for tables of other programs, which may be of any
 * size. src/kernel/nftables/dump.ts reads the messages.
 */
export function firstNftObjects(
  netns: NetnsRef,
  kind: 'getTable' | 'getChain' | 'getRule' | 'getSet' | 'getElements',
  family: number,
  names: readonly string[],
  max: number,
): NetlinkMessage[] {
  const socket = new NetlinkSocket({ protocol: NETLINK_NETFILTER, netns });
  const writer = new MessageWriter(64);
  writer.u8(family).u8(0).u16(0);
  // The table's name is attribute 1 of each kind, the set's name attribute 2 of elements.
  for (const [index, name] of names.entries()) writer.attributeText(index + 1, name);
  return socket.dumpFirst(messageType(NFT_MSG[kind]), writer.bytes(), max, names.join(' '));
}

function check(batch: NftBatch, refusals: readonly NetlinkRefusal[]): void {
  const [first] = refusals;
  if (!first) return;
  const object = batch.object(first.sequence);
  const code = errnoName(first.errno);
  const where = first.offset === null ? '' : ` at byte ${first.offset}`;
  const more = refusals.length > 1 ? ` (and ${refusals.length - 1} more)` : '';
  const hint =
    code === 'EPERM'
      ? 'the table is owned by another process (is another agent running?), or CAP_NET_ADMIN is missing'
      : null;
  throw new NftRefusal(`the kernel refused ${object}: ${code}${where}${more}`, code, object, refusals, hint);
}
