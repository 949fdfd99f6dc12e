import { libc } from '../../kernel/libc.ts';
import { readU32 } from '../../kernel/netlink/attributes.ts';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { watchNftables } from '../../kernel/nftables/events.ts';
import type { IPFamily } from '../../lib/address.ts';
import { TABLES } from './base-chains.ts';

/** Detects changes of the tables by other programs. */
export interface DriftWatch {
  /** Must be called, with `end`, around changes by this process. */
  begin(): void;
  /** Must be called with the process id of each command that this process runs. */
  ownProcess(pid: number): void;
  end(): void;
  close(): void;
}

export interface DriftWatchOptions {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly onChange: () => void;
}

/** Number of process ids that are kept: events of a command arrive before or soon after it ends. */
const REMEMBERED_PROCESSES = 64;

/**
 * Watches the nft variant: a transaction on the tables `nat` or `filter` that none of our processes made is
 * a foreign change.
 */
export function watchNftEvents({ families, netns, onChange }: DriftWatchOptions): DriftWatch {
  const watched = new Set(families.flatMap((family) => TABLES.map((table) => `${NFPROTO[family]} ${table}`)));
  const own: number[] = [];
  let changing = 0;
  // In another PID namespace process ids do not match: during a change by this process all events count as
  // its own.
  const report = () => {
    if (changing === 0) onChange();
  };
  const watch = watchNftables(
    ({ tables, pid }) => {
      if (!own.includes(pid) && [...tables].some((table) => watched.has(table))) report();
    },
    report,
    netns,
  );
  return {
    begin: () => changing++,
    ownProcess(pid) {
      own.push(pid);
      if (own.length > REMEMBERED_PROCESSES) own.shift();
    },
    end: () => changing--,
    close: () => watch.close(),
  };
}

const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_RAW = 3;
const SOCK_CLOEXEC = 0o2000000;
const IPPROTO_RAW = 255;
/** linux/netfilter_ipv4/ip_tables.h; IPv6 has the same number at its own level. */
const XT_SO_GET_INFO = 64;
const SOL_IP = 0;
const SOL_IPV6 = 41;
/** struct ipt_getinfo: name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO_BYTES = 84;

/**
 * Watches the legacy variant, which has no events: a cheap system call returns each table's number of rules
 * and size, so polling detects added and removed rules.
 */
export function watchLegacyTables(options: DriftWatchOptions, intervalMs = 500): DriftWatch {
  const { families, netns, onChange } = options;
  const sockets = families.map((family) => {
    const open = () =>
      libc().socket(family === 'ipv4' ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    return {
      fd: inNetns(netns, open),
      level: family === 'ipv4' ? SOL_IP : SOL_IPV6,
    };
  });
  const readState = (): string =>
    sockets.flatMap(({ fd, level }) => TABLES.map((table) => tableInfo(fd, level, table))).join(' ');
  let changing = 0;
  let last = readState();
  const timer = setInterval(() => {
    if (changing > 0) return;
    const now = readState();
    if (now === last) return;
    last = now;
    onChange();
  }, intervalMs);
  timer.unref();
  return {
    begin: () => changing++,
    ownProcess() {},
    end() {
      changing--;
      last = readState();
    },
    close() {
      clearInterval(timer);
      for (const { fd } of sockets) libc().close(fd);
    },
  };
}

/** Returns the number of entries and bytes of a table; "absent" while no program has used it. */
function tableInfo(fd: number, level: number, table: string): string {
  const info = new Uint8Array(INFO_BYTES);
  info.set(Buffer.from(table, 'latin1'));
  const length = Uint8Array.of(INFO_BYTES, 0, 0, 0);
  if (libc().getsockopt(fd, level, XT_SO_GET_INFO, info, length) !== 0) return 'absent';
  return `${readU32(info, 76)}/${readU32(info, 80)}`;
}
