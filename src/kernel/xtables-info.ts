import type { IPFamily } from '../lib/address.ts';
import { libc } from './libc.ts';
import { readU32 } from './netlink/attributes.ts';
import { inNetns, type NetnsRef } from './netns.ts';
import { readOptionalFile } from './optional-file.ts';
import { AF_INET, AF_INET6, IPPROTO_RAW, SOCK_CLOEXEC, SOCK_RAW } from './socket-numbers.ts';

/** linux/netfilter_ipv4/ip_tables.h; IPv6 has the same number at its own level. */
const XT_SO_GET_INFO = 64;
const SOL_IP = 0;
const SOL_IPV6 = 41;
/** struct ipt_getinfo: name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO_BYTES = 84;

/** Reads the tables of x_tables (legacy iptables) of a family; a cheap system call each. */
export interface XtablesInfo {
  /** Returns the number of entries and bytes of a table: "5/952"; "absent" while no program has used it. */
  read(table: string): string;
  close(): void;
}

/** Returns the names of the tables that exist: reading another one would create it. */
export function existingTables(family: IPFamily, netns?: NetnsRef): string[] {
  const file = `/proc/thread-self/net/${family === 'ipv4' ? 'ip' : 'ip6'}_tables_names`;
  const names = inNetns(netns, () => readOptionalFile(file)) ?? '';
  return names.split('\n').filter(Boolean);
}

export function openXtablesInfo(family: IPFamily, netns: NetnsRef | undefined): XtablesInfo {
  const [domain, level] = family === 'ipv4' ? [AF_INET, SOL_IP] : [AF_INET6, SOL_IPV6];
  const fd = inNetns(netns, () => libc().socket(domain, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  return {
    read(table) {
      const info = new Uint8Array(INFO_BYTES);
      info.set(Buffer.from(table, 'latin1'));
      const length = Uint8Array.of(INFO_BYTES, 0, 0, 0);
      if (libc().getsockopt(fd, level, XT_SO_GET_INFO, info, length) !== 0) return 'absent';
      return `${readU32(info, 76)}/${readU32(info, 80)}`;
    },
    close: () => void libc().close(fd),
  };
}
