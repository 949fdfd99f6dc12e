import { randomInt } from 'node:crypto';
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
import { NFNL_SUBSYS_NFTABLES, NFT_MSG, TABLE_FLAG } from './constants.ts';
import { type DumpedElement, readElements, readNamed, type SetDump } from './dump.ts';

const messageType = (message: number) => (NFNL_SUBSYS_NFTABLES << 8) | message;
/** A dump of elements is repeated when a commit fell into it, at most this often. */
const DUMP_ATTEMPTS = 10;

/** A transaction that the kernel refused: nothing of it was done. */
export class NftRefusal extends FairleadError {
  readonly refusals: readonly NetlinkRefusal[];

  constructor(
    message: string,
    code: string,
    object: string,
    refusals: readonly NetlinkRefusal[],
    hint: string | null = null,
  ) {
    super(message, { op: 'program nf_tables', code, object, ...(hint === null ? {} : { hint }) });
    this.refusals = refusals;
  }
}

/** A netlink socket to nf_tables in one network namespace. A table with an owner belongs to the socket that made it. */
export class NftConnection {
  readonly #socket: NetlinkSocket;
  /** Events carry the sequence number of what caused them: a range of its own tells ours from others'. */
  readonly #firstSequence = 0x40000000 + randomInt(0x30000000);
  #sequence = this.#firstSequence;

  /** `netns`: default the namespace of this thread. */
  constructor(netns?: NetnsRef) {
    this.#socket = new NetlinkSocket({
      protocol: NETLINK_NETFILTER,
      ...(netns === undefined ? {} : { netns }),
    });
  }

  batch(family: number, options: { generation?: number; capacity?: number } = {}): NftBatch {
    return new NftBatch(family, () => this.#sequence++, options);
  }

  /** True for an event's sequence number when this connection caused it. */
  wrote(sequence: number): boolean {
    return sequence >= this.#firstSequence && sequence < this.#sequence;
  }

  /**
   * Commits a transaction; large ones on a thread. Throws NftRefusal naming the object that the kernel refused, with
   * the errno's name as code: ERESTART when the ruleset has another generation by now, ENFILE when a set is full,
   * EPERM when the table has another owner.
   */
  async commit(batch: NftBatch): Promise<void> {
    if (batch.empty) return;
    const { bytes, last } = batch.finish();
    check(batch, await this.#socket.batch(bytes, last));
  }

  /** As `commit`, blocking while the kernel works. */
  commitSync(batch: NftBatch): void {
    if (batch.empty) return;
    const { bytes, last } = batch.finish();
    check(batch, this.#socket.batchSync(bytes, last));
  }

  /** The number of the last transaction in this namespace, by anyone. */
  generation(): number {
    const [reply] = this.#socket.request(messageType(NFT_MSG.getGeneration), 0, new Uint8Array(4));
    const id = reply && readAttributes(reply.payload.subarray(4)).get(1);
    if (!id)
      throw new FairleadError('the kernel did not tell its nf_tables generation', {
        op: 'read nf_tables',
        code: 'EPROTO',
      });
    return readBe32(id);
  }

  /** Names and flags of a family's tables. */
  tables(family: number): { readonly name: string; readonly flags: number }[] {
    return this.#dump(NFT_MSG.getTable, family, []).map((message) => {
      const { name, attributes } = readNamed(message, 1);
      const flags = attributes.get(2);
      return { name, flags: flags ? readBe32(flags) : 0 };
    });
  }

  /** Names of a table's chains. */
  chains(family: number, table: string): string[] {
    return this.#dump(NFT_MSG.getChain, family, [[1, table]])
      .filter((message) => readNamed(message, 1).name === table)
      .map((message) => readNamed(message, 3).name);
  }

  /** Expressions of a table's rules, as the kernel writes them, by chain and in order. */
  rules(family: number, table: string): Map<string, Uint8Array[]> {
    const rules = new Map<string, Uint8Array[]>();
    for (const message of this.#dump(NFT_MSG.getRule, family, [[1, table]])) {
      const { name, attributes } = readNamed(message, 1);
      if (name !== table) continue;
      const chain = readNamed(message, 2).name;
      const list = rules.get(chain);
      const expressions = attributes.get(4) ?? new Uint8Array(0);
      if (list) list.push(expressions);
      else rules.set(chain, [expressions]);
    }
    return rules;
  }

  /** A table's sets and maps, without elements. */
  sets(family: number, table: string): SetDump[] {
    return this.#dump(NFT_MSG.getSet, family, [[1, table]])
      .filter((message) => readNamed(message, 1).name === table)
      .map((message) => {
        const { name, attributes } = readNamed(message, 2);
        const flags = attributes.get(3);
        const description = attributes.get(9);
        const size = description && readAttributes(description).get(1);
        return { name, flags: flags ? readBe32(flags) : 0, size: size ? readBe32(size) : 0 };
      });
  }

  /**
   * Elements of a set. The kernel does not flag a dump that a commit fell into, but numbers each part with the
   * generation: unequal ones are asked for again.
   */
  elements(family: number, table: string, set: string): DumpedElement[] {
    for (let attempt = 1; ; attempt++) {
      const messages = this.#dump(NFT_MSG.getElements, family, [
        [1, table],
        [2, set],
      ]);
      const generations = new Set(
        messages.map(({ payload }) => ((payload[2] ?? 0) << 8) | (payload[3] ?? 0)),
      );
      if (generations.size <= 1 || attempt === DUMP_ATTEMPTS) return messages.flatMap(readElements);
    }
  }

  /**
   * Removes a table that packets pass through, in two transactions. In one, the kernel takes the elements of maps away
   * some hundred microseconds before it takes the chains off their hooks (nf_tables_commit builds no new rules for
   * chains that go): packets would find the rules, but not what these look up.
   */
  async removeTable(family: number, name: string): Promise<void> {
    const rules = this.batch(family);
    rules.flushTable(name);
    await this.commit(rules);
    const rest = this.batch(family);
    rest.deleteTable(name);
    await this.commit(rest);
  }

  /** True when tables can belong to this process and outlive it (Linux 6.9). */
  canOwnTables(family: number): boolean {
    const name = `fairlead-probe-${process.pid}`;
    const batch = this.batch(family);
    batch.addTable(name, TABLE_FLAG.owner | TABLE_FLAG.persist);
    batch.deleteTable(name);
    try {
      this.commitSync(batch);
      return true;
    } catch (error) {
      if (hasCode(error, 'EOPNOTSUPP', 'EINVAL')) return false;
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
