import { closeSync, openSync, readSync } from 'node:fs';
import { inNetns, type NetnsRef } from '../kernel/netns.ts';
import { EXTENSION, LAYOUT, VERDICTS } from '../kernel/xtables/layout.ts';
import { openXtablesInfo } from '../kernel/xtables-info.ts';
import type { IPFamily } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';

const FAMILIES = [
  { family: 'ipv4', kind: 'ip', names: 'ip_tables_names' },
  { family: 'ipv6', kind: 'ip6', names: 'ip6_tables_names' },
] as const;
/** The kernel has five: filter, nat, mangle, raw, security. */
const MAX_NAMES_BYTES = 256;
/** A table is copied whole; larger ones are not looked into. */
const MAX_TABLE_BYTES = 4 << 20;
/** The chains of the iptables mode, which `explain` knows, and of the kubelet: a table that has them is left out whole. */
const OWN_CHAIN = 'KUBE-';
const ACCEPT = VERDICTS.get('ACCEPT');

/**
 * Returns the tables of iptables-legacy that may change a packet's way in a network namespace: those that other programs have given
 * rules, or policies besides ACCEPT. Reads only tables that exist already, since the kernel makes a table that is asked for.
 */
export function legacyTables(netns: NetnsRef): string[] {
  return FAMILIES.flatMap(({ family, kind, names: file }) => {
    const names = inNetns(netns, () => readNames(`/proc/thread-self/net/${file}`));
    if (names.length === 0) return [];
    const info = openXtablesInfo(family, netns);
    try {
      return names
        .filter((name) => {
          const entries = info.entries(name, MAX_TABLE_BYTES);
          if (entries === null) return true;
          return !isEmpty(entries, family) && !Buffer.from(entries.buffer).includes(OWN_CHAIN);
        })
        .map((name) => `table ${kind} ${name} of iptables-legacy`);
    } finally {
      info.close();
    }
  });
}

function readNames(file: string): string[] {
  let fd: number;
  try {
    fd = openSync(file, 'r');
  } catch (error) {
    // This kernel has no iptables-legacy.
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
  try {
    const bytes = Buffer.alloc(MAX_NAMES_BYTES);
    return bytes.toString('latin1', 0, readSync(fd, bytes)).split('\n').filter(Boolean);
  } finally {
    closeSync(fd);
  }
}

/** Whether a table has nothing but its built-in chains with the policy ACCEPT, and the entry that ends it. */
export function isEmpty(entries: Uint8Array, family: IPFamily): boolean {
  const layout = LAYOUT[family];
  const view = new DataView(entries.buffer, entries.byteOffset, entries.byteLength);
  for (let at = 0; at + layout.bytes + EXTENSION.bytes + 4 <= entries.length; ) {
    const next = view.getUint16(at + layout.next, true);
    const target = at + view.getUint16(at + layout.target, true);
    if (next === 0 || at + next === entries.length) return at + next === entries.length;
    const isStandard = entries[target + EXTENSION.name] === 0;
    const hasMatches = target !== at + layout.bytes;
    // The addresses, devices and protocol of a packet.
    const isForAll = entries.subarray(at, at + layout.inverted + 1).every((byte) => byte === 0);
    if (!isStandard || hasMatches || !isForAll) return false;
    if (view.getInt32(target + EXTENSION.bytes, true) !== ACCEPT) return false;
    at += next;
  }
  return false;
}
