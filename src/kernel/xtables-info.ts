import type { IPFamily } from '../lib/address.ts';
import { libc } from './libc.ts';
import { readU32 } from './netlink/attributes.ts';
import { inNetns, type NetnsRef } from './netns.ts';
import { AF_INET, AF_INET6, IPPROTO_RAW, SOCK_CLOEXEC, SOCK_RAW } from './socket-numbers.ts';

/** linux/netfilter_ipv4/ip_tables.h; IPv6 has the same number at its own level. */
const XT_SO_GET_INFO = 64;
const XT_SO_GET_ENTRIES = 65;
const SOL_IP = 0;
const SOL_IPV6 = 41;
/** struct ipt_getinfo: name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO_BYTES = 84;
/** struct ipt_get_entries: name[32], size, entries. */
const GET_ENTRIES = { size: 32, entries: 40 } as const;

/** Reads the tables of x_tables (legacy iptables) of a family; a cheap system call each. */
export interface XtablesInfo {
  /** Returns the number of entries and bytes of a table: "5/952"; "absent" while no program has used it. */
  read(table: string): string;
  /** Returns a table's entries as the kernel has them; null: more than `maxBytes`, or another program has just changed them. */
  entries(table: string, maxBytes: number): Uint8Array | null;
  close(): void;
}

export function openXtablesInfo(family: IPFamily, netns: NetnsRef | undefined): XtablesInfo {
  const [domain, level] = family === 'ipv4' ? [AF_INET, SOL_IP] : [AF_INET6, SOL_IPV6];
  const fd = inNetns(netns, () => libc().socket(domain, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  const infoOf = (table: string): Uint8Array | null => {
    const info = new Uint8Array(INFO_BYTES);
    info.set(Buffer.from(table, 'latin1'));
    const length = Uint8Array.of(INFO_BYTES, 0, 0, 0);
    return libc().getsockopt(fd, level, XT_SO_GET_INFO, info, length) === 0 ? info : null;
  };
  return {
    read(table) {
      const info = infoOf(table);
      return info === null ? 'absent' : `${readU32(info, 76)}/${readU32(info, 80)}`;
    },
    entries(table, maxBytes) {
      const info = infoOf(table);
      const size = info === null ? 0 : readU32(info, 80);
      if (info === null || size > maxBytes) return null;
      const request = Buffer.alloc(GET_ENTRIES.entries + size);
      request.write(table, 'latin1');
      request.writeUInt32LE(size, GET_ENTRIES.size);
      const length = new Uint8Array(Uint32Array.of(request.length).buffer);
      if (libc().getsockopt(fd, level, XT_SO_GET_ENTRIES, request, length) !== 0) return null;
      return Uint8Array.from(request.subarray(GET_ENTRIES.entries));
    },
    close: () => void libc().close(fd),
  };
}
