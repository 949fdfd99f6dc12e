import type { NetnsRef } from '../kernel/netns.ts';
import { openXtables, REPLACE, type XtablesConnection } from '../kernel/xtables/connection.ts';
import { EXTENSION, LAYOUT, VERDICTS } from '../kernel/xtables/layout.ts';
import { existingTables } from '../kernel/xtables-info.ts';
import type { IPFamily } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';

const FAMILIES = [
  { family: 'ipv4', kind: 'ip' },
  { family: 'ipv6', kind: 'ip6' },
] as const;
/** A table is copied whole; larger ones are not looked into. */
const MAX_TABLE_BYTES = 4 << 20;
/** The chains of the iptables mode, which `explain` knows, and of the kubelet: a table that has them is left out whole. */
const OWN_CHAIN = 'KUBE-';
const ACCEPT = VERDICTS.get('ACCEPT');

/**
 * Returns the tables of iptables-legacy that may change a packet's way in a network namespace: those that other programs have given
 * rules, or policies besides ACCEPT. Throws FairleadError (socket(2), getsockopt(2)).
 */
export async function legacyTables(netns: NetnsRef): Promise<string[]> {
  const found: string[] = [];
  for (const { family, kind } of FAMILIES) {
    const names = existingTables(family, netns);
    if (names.length === 0) continue;
    const tables = openXtables(family, netns);
    try {
      for (const name of names)
        if (await isOfOthers(tables, name, family)) found.push(`table ${kind} ${name} of iptables-legacy`);
    } finally {
      tables.close();
    }
  }
  return found;
}

async function isOfOthers(tables: XtablesConnection, name: string, family: IPFamily): Promise<boolean> {
  try {
    using table = await tables.read(name, MAX_TABLE_BYTES);
    const entries = table.memory.bytes.subarray(REPLACE.bytes, REPLACE.bytes + table.size);
    return !isEmpty(entries, family) && !entries.includes(OWN_CHAIN);
  } catch (error) {
    // A table that is too large, or changes all the time, has rules.
    if (hasCode(error, 'EFBIG', 'EAGAIN')) return true;
    throw error;
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
