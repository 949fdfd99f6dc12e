import type { NetnsRef } from '../../kernel/netns.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { watchNftables } from '../../kernel/nftables/events.ts';
import { openXtablesInfo } from '../../kernel/xtables-info.ts';
import type { IPFamily } from '../../lib/address.ts';
import { TABLES } from './chain-names.ts';

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

/**
 * Watches the legacy variant, which has no events: a cheap system call returns each table's number of rules
 * and size, so polling detects added and removed rules.
 */
export function watchLegacyTables(options: DriftWatchOptions, intervalMs = 500): DriftWatch {
  const { families, netns, onChange } = options;
  const tables = families.map((family) => openXtablesInfo(family, netns));
  const readState = (): string => tables.flatMap((info) => TABLES.map((table) => info.read(table))).join(' ');
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
      for (const info of tables) info.close();
    },
  };
}
