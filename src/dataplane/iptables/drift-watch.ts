import { libc } from '../../kernel/libc.ts';
import { readAttributes, readBe32, readText, readU32 } from '../../kernel/netlink/attributes.ts';
import { NETLINK_NETFILTER, type NetlinkMessage, NetlinkSocket } from '../../kernel/netlink/socket.ts';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';

/** Detects changes of the tables by other programs. */
export interface DriftWatch {
  /** Call `begin` and `end` around our own changes. */
  begin(): void;
  /** Call with the process id of each command that we run. */
  ownProcess(pid: number): void;
  end(): void;
  close(): void;
}

export interface DriftWatchOptions {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly onChange: () => void;
}

// linux/netfilter/nfnetlink.h, nf_tables.h
const NFNLGRP_NFTABLES = 7;
const NFNL_SUBSYS_NFTABLES = 10;
const NFT_MSG_NEWGEN = 15;
const NFTA_GEN_PROC_PID = 2;
const NFTA_OBJECT_TABLE = 1;
const NFPROTO_IPV4 = 2;
const NFPROTO_IPV6 = 10;

/** How many of our processes are remembered: their events arrive before or soon after they end. */
const REMEMBERED_PROCESSES = 64;

/**
 * Watches the nft variant: the kernel announces each transaction's objects, and at its end the process that made it. One
 * that touched the tables `nat` or `filter` and was not made by us is a foreign change.
 */
export function watchNftEvents(options: DriftWatchOptions): DriftWatch {
  const { families, netns, onChange } = options;
  const protocols = new Set<number>(
    families.map((family) => (family === 'ipv4' ? NFPROTO_IPV4 : NFPROTO_IPV6)),
  );
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    receiveBuffer: 8 << 20,
    netns,
  });
  const own: number[] = [];
  let changing = 0;
  let touched = false;

  function onMessage({ type, payload }: NetlinkMessage): void {
    if (type >> 8 !== NFNL_SUBSYS_NFTABLES) return;
    if ((type & 0xff) !== NFT_MSG_NEWGEN) {
      if (touched || !protocols.has(payload[0] ?? 0)) return;
      const table = readAttributes(payload.subarray(4)).get(NFTA_OBJECT_TABLE);
      const name = table ? readText(table) : '';
      touched = name === 'nat' || name === 'filter';
      return;
    }
    const pid = readAttributes(payload.subarray(4)).get(NFTA_GEN_PROC_PID);
    const foreign = touched && !(pid && own.includes(readBe32(pid)));
    touched = false;
    // In another PID namespace process ids do not match: during our own changes all count as ours.
    if (foreign && changing === 0) onChange();
  }

  socket.subscribe([NFNLGRP_NFTABLES], onMessage, () => {
    touched = false;
    if (changing === 0) onChange();
  });
  socket.unref();
  return {
    begin: () => changing++,
    ownProcess(pid) {
      own.push(pid);
      if (own.length > REMEMBERED_PROCESSES) own.shift();
    },
    end: () => changing--,
    close: () => socket.close(),
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
 * Watches the legacy variant, which has no events: a cheap system call returns each table's number of rules and size, so
 * that polling detects added and removed rules.
 */
export function watchLegacyTables(options: DriftWatchOptions, intervalMs = 500): DriftWatch {
  const { families, netns, onChange } = options;
  const sockets = families.map((family) => {
    const open = () =>
      libc().socket(family === 'ipv4' ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    return {
      fd: netns === undefined ? open() : inNetns(netns, open),
      level: family === 'ipv4' ? SOL_IP : SOL_IPV6,
    };
  });
  const look = (): string =>
    sockets
      .flatMap(({ fd, level }) => ['nat', 'filter'].map((table) => tableInfo(fd, level, table)))
      .join(' ');
  let changing = 0;
  let last = look();
  const timer = setInterval(() => {
    if (changing > 0) return;
    const now = look();
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
      last = look();
    },
    close() {
      clearInterval(timer);
      for (const { fd } of sockets) libc().close(fd);
    },
  };
}

/** Number of entries and bytes of a table; "absent" while nothing has used it. */
function tableInfo(fd: number, level: number, table: string): string {
  const info = new Uint8Array(INFO_BYTES);
  info.set(Buffer.from(table, 'latin1'));
  const length = Uint8Array.of(INFO_BYTES, 0, 0, 0);
  if (libc().getsockopt(fd, level, XT_SO_GET_INFO, info, length) !== 0) return 'absent';
  return `${readU32(info, 76)}/${readU32(info, 80)}`;
}
