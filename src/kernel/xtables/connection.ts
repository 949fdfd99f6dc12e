import { constants as os } from 'node:os';
import type { IPFamily } from '../../lib/address.ts';
import { type ErrnoName, errorCode } from '../../lib/error-codes.ts';
import { errnoError, errnoName, libc, systemError } from '../libc.ts';
import { type ReservedMemory, reserveMemory } from '../mapped-memory.ts';
import { inNetns, type NetnsRef } from '../netns.ts';
import { AF_INET, AF_INET6, IPPROTO_RAW, SOCK_CLOEXEC, SOCK_RAW } from '../socket-numbers.ts';
import { HOOKS } from './layout.ts';

// linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h; IPv6 has the same numbers at its own level.
const SO_SET_REPLACE = 64;
const SO_SET_ADD_COUNTERS = 65;
const SO_GET_INFO = 64;
const SO_GET_ENTRIES = 65;
const SO_GET_REVISION: Readonly<Record<IPFamily, { readonly match: number; readonly target: number }>> = {
  ipv4: { match: 66, target: 67 },
  ipv6: { match: 68, target: 69 },
};
const SOL_IP = 0;
const SOL_IPV6 = 41;

/** struct ipt_getinfo: name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO = { validHooks: 32, hookEntry: 36, underflow: 56, entries: 76, size: 80, bytes: 84 } as const;
/** struct ipt_get_entries: name[32], size, entries. */
const GET_ENTRIES = { size: 32, entries: 40 } as const;
/** struct ipt_replace, like ipt_getinfo at its start. */
export const REPLACE = {
  validHooks: 32,
  entries: 36,
  size: 40,
  hookEntry: 44,
  underflow: 64,
  numCounters: 84,
  counters: 88,
  bytes: 96,
} as const;
/** struct xt_counters_info: name[32], num_counters, counters; struct xt_counters: u64 packets, u64 bytes. */
const COUNTERS_INFO = { count: 32, counters: 40 } as const;
export const COUNTER_BYTES = 16;
/** struct xt_get_revision: name[29], revision. */
const REVISION = { room: 29, bytes: 30 } as const;

/** Where a table that is read begins: its entries are where SO_SET_REPLACE has them. */
const GET_START = REPLACE.bytes - GET_ENTRIES.entries;
/** Room to change a table in place, in bytes; pages that are not written take no memory. */
const ROOM = 1 << 20;

/** Attempts to read a table that other programs change. */
const READ_ATTEMPTS = 20;

/** A table as the kernel returns it. */
export interface RawTable extends Disposable {
  readonly name: string;
  readonly validHooks: number;
  readonly hookEntries: readonly number[];
  readonly underflows: readonly number[];
  readonly count: number;
  /** The entries begin at REPLACE.bytes of this memory, which has room to change them in place. */
  readonly memory: ReservedMemory;
  /** Bytes of the entries. */
  readonly size: number;
}

/** A table to write: the entries begin at REPLACE.bytes of the memory, whose first part the connection writes. */
export interface Replacement {
  readonly memory: ReservedMemory;
  readonly hookEntries: readonly number[];
  readonly underflows: readonly number[];
  readonly count: number;
  readonly size: number;
}

/** The tables of legacy iptables of one family in a network namespace. */
export interface XtablesConnection {
  /**
   * Reads a table. Throws FairleadError: ENOPROTOOPT if the kernel lacks x_tables, ENOENT if it lacks the table, EFBIG if the
   * entries are more than `maxBytes`.
   */
  read(table: string, maxBytes?: number): Promise<RawTable>;
  /**
   * Replaces a table that was read before. Returns the old counters, of `old.count` entries, or the errno's name if the
   * kernel refuses: EAGAIN if another program has changed the number of entries since.
   */
  replace(old: RawTable, table: Replacement): Promise<ReservedMemory | ErrnoName>;
  /** Adds to the counters of all entries of a table; the counters begin at COUNTERS_BYTES of the memory. */
  addCounters(table: string, memory: ReservedMemory, count: number): Promise<void>;
  /** Returns true if the kernel knows this revision of a match or target. */
  hasRevision(kind: 'match' | 'target', name: string, revision: number): boolean;
  close(): void;
}

/** The place of the first counter in the memory for `addCounters`. */
export const COUNTERS_BYTES = COUNTERS_INFO.counters;

/** Opens the tables. `netns`: default the namespace of this thread. Throws FairleadError (socket(2)). */
export function openXtables(family: IPFamily, netns: NetnsRef | undefined): XtablesConnection {
  const [domain, level] = family === 'ipv4' ? [AF_INET, SOL_IP] : [AF_INET6, SOL_IPV6];
  const fd = inNetns(netns, () => libc().socket(domain, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (fd < 0) throw systemError('open raw socket', family, 'run as root, or with CAP_NET_RAW');

  let closed = false;

  /** The descriptor's number may be another socket's after `close`. */
  function refuseClosed(): void {
    if (closed) throw errnoError(os.errno.EBADF, `use the ${family} tables of iptables`);
  }

  function readInfo(table: string): DataView {
    refuseClosed();
    const info = new Uint8Array(INFO.bytes);
    info.set(Buffer.from(table, 'latin1'));
    if (libc().getsockopt(fd, level, SO_GET_INFO, info, lengthOf(INFO.bytes)) !== 0)
      throw systemError(`read the ${family} table`, table);
    return new DataView(info.buffer);
  }

  return {
    async read(table, maxBytes = Number.POSITIVE_INFINITY) {
      for (let attempt = 1; ; attempt++) {
        const info = readInfo(table);
        const size = info.getUint32(INFO.size, true);
        if (size > maxBytes) throw errnoError(os.errno.EFBIG, `read the ${family} table ${table}`);
        const memory = reserveMemory(REPLACE.bytes + size + ROOM);
        const request = memory.bytes.subarray(GET_START);
        request.write(table, 'latin1');
        request.writeUInt32LE(size, GET_ENTRIES.size);
        const length = lengthOf(GET_ENTRIES.entries + size);
        const { result, errno } = await libc().getsockoptAsync(fd, level, SO_GET_ENTRIES, request, length);
        if (result === 0) {
          const hooks = (at: number) =>
            Array.from({ length: HOOKS }, (_, i) => info.getUint32(at + 4 * i, true));
          return {
            name: table,
            validHooks: info.getUint32(INFO.validHooks, true),
            hookEntries: hooks(INFO.hookEntry),
            underflows: hooks(INFO.underflow),
            count: info.getUint32(INFO.entries, true),
            memory,
            size,
            [Symbol.dispose]: memory.free,
          };
        }
        memory.free();
        // The table has another size than a moment ago.
        if (errnoName(errno) !== 'EAGAIN' || attempt === READ_ATTEMPTS)
          throw errnoError(errno, `read the ${family} table ${table}`);
      }
    },
    async replace(old, { memory, hookEntries, underflows, count, size }) {
      refuseClosed();
      const counters = reserveMemory(Math.max(1, old.count) * COUNTER_BYTES);
      const { bytes } = memory;
      // The memory of a table that was read has the request for it here.
      bytes.fill(0, 0, REPLACE.bytes).write(old.name, 'latin1');
      bytes.writeUInt32LE(old.validHooks, REPLACE.validHooks);
      bytes.writeUInt32LE(count, REPLACE.entries);
      bytes.writeUInt32LE(size, REPLACE.size);
      for (let i = 0; i < HOOKS; i++) {
        bytes.writeUInt32LE(hookEntries[i] ?? 0, REPLACE.hookEntry + 4 * i);
        bytes.writeUInt32LE(underflows[i] ?? 0, REPLACE.underflow + 4 * i);
      }
      bytes.writeUInt32LE(old.count, REPLACE.numCounters);
      bytes.writeBigUInt64LE(counters.address, REPLACE.counters);
      const { result, errno } = await libc().setsockoptAsync(
        fd,
        level,
        SO_SET_REPLACE,
        bytes,
        REPLACE.bytes + size,
      );
      if (result === 0) return counters;
      counters.free();
      return errorCode(errnoName(errno)) as ErrnoName;
    },
    async addCounters(table, memory, count) {
      refuseClosed();
      memory.bytes.write(table, 'latin1');
      memory.bytes.writeUInt32LE(count, COUNTERS_INFO.count);
      const length = COUNTERS_INFO.counters + count * COUNTER_BYTES;
      const { result, errno } = await libc().setsockoptAsync(
        fd,
        level,
        SO_SET_ADD_COUNTERS,
        memory.bytes,
        length,
      );
      if (result !== 0) throw errnoError(errno, `restore the counters of the ${family} table ${table}`);
    },
    hasRevision(kind, name, revision) {
      refuseClosed();
      const request = new Uint8Array(REVISION.bytes);
      request.set(Buffer.from(name, 'latin1'));
      request[REVISION.room] = revision;
      return (
        libc().getsockopt(fd, level, SO_GET_REVISION[family][kind], request, lengthOf(REVISION.bytes)) === 0
      );
    },
    close() {
      if (!closed) libc().close(fd);
      closed = true;
    },
  };
}

function lengthOf(length: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, length, true);
  return bytes;
}
