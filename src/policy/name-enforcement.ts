import type { NetnsRef } from '../kernel/netns.ts';
import type { Element } from '../kernel/nftables/batch.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import type { DumpedElement } from '../kernel/nftables/dump.ts';
import { formatAddress, type IPFamily } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';
import { wordsOfAddress } from '../nft/encoding.ts';
import type { KeptName, LearnedNames, Learning, NameElement, NameWrite } from './learned-names.ts';
import { matchesNames, type NameGroup } from './name-group.ts';
import { MAX_LIFETIME_MS } from './name-limits.ts';
import { openNameWriter } from './name-writer.ts';
import { groupOfNameSet, nameSetOf, POLICY_TABLE } from './policy-chain-names.ts';
import { namesOf } from './policy-references.ts';
import type { PolicyTable } from './policy-table.ts';

export interface NameEnforcementOptions {
  readonly policies: PolicyTable;
  readonly learned: LearnedNames;
  /** What authorizes notes to the kernel (name-notes.ts): unpredictable, another one for each process. */
  readonly secret: string;
  readonly netns?: NetnsRef | undefined;
  /** What an earlier process knew: its elements in the kernel have no names. */
  readonly kept?: readonly KeptName[];
}

/** Keeps the kernel's sets of names in sync with what pods got, beside the enforcement that writes the table. */
export interface NameEnforcement {
  readonly secret: string;
  /** Whether the table is being replaced: the next one may lack what is written now. */
  readonly isReplacing: boolean;
  /** Called before the kernel gets the changes of these pods. */
  podsChanged(keys: Iterable<string>): void;
  /** Returns the elements of a set in a replacing table, given those of the table before it. */
  restore(set: string, elements: readonly DumpedElement[], family: IPFamily): Element[];
  /** Returns the elements of a set in a new table, or of a new set. */
  fill(set: string, family: IPFamily): Element[];
  replacing<T>(replace: () => Promise<T>): Promise<T>;
  /** Called when the kernel has the changes; returns the keys of elements to be deleted, by family and set. */
  programmed(): ReadonlyMap<IPFamily, ReadonlyMap<string, Uint32Array[]>>;
  /** Writes what the pod of an answer needs. Returns whether the kernel has all of it. */
  write(learning: Learning): boolean;
  close(): void;
}

export function createNameEnforcement(options: NameEnforcementOptions): NameEnforcement {
  const { policies, learned, secret, netns } = options;
  const writer = openNameWriter(secret, netns ?? null);
  /** By pod, until the pod is known. */
  const kept = new Map<string, KeptName[]>();
  for (const one of options.kept ?? []) kept.set(one.pod, [...(kept.get(one.pod) ?? []), one]);
  let gone: NameElement[] = [];
  let fresh: NameWrite[] = [];
  let replacements = 0;
  /** The kernel is getting changes: a set that it has now may be replaced. */
  let isProgramming = false;

  const put = ({ group, pod, address, neededMs }: NameWrite): boolean =>
    writer.write(group, pod, address, neededMs);

  /** Takes over what an earlier process knew of a pod, if it is still the pod with these addresses. */
  function adoptKept(key: string): void {
    const pod = policies.programmed(key);
    const list = kept.get(key);
    kept.delete(key);
    for (const { podAddresses, address, names, until } of list ?? []) {
      for (const own of podAddresses) {
        if (!pod?.addresses.includes(own) || own.includes(':') !== address.includes(':')) continue;
        // Another group of the pod may have other ports.
        for (const group of groupsOf(key))
          if (names.some((name) => matchesNames(group, name)))
            learned.adopt(
              { group: group.id, pod: own, address },
              Math.min(until - Date.now(), MAX_LIFETIME_MS),
              names,
            );
      }
    }
  }

  /** By policy, while pods are looked through: many of them have the same. */
  const policyGroups = new Map<string, NameGroup[]>();
  const groupsOfPolicy = (key: string): NameGroup[] => {
    const policy = policies.activePolicy(key);
    const known = policyGroups.get(key) ?? (policy ? namesOf(policy) : []);
    policyGroups.set(key, known);
    return known;
  };

  const groupsOf = (key: string) => {
    const { isolatedBy } = policies.programmed(key) ?? {};
    const groups = (isolatedBy?.egress ?? []).flatMap(groupsOfPolicy);
    return [...new Map(groups.map((group) => [group.id, group])).values()];
  };

  const elementOf = ({ pod, address, neededMs }: NameWrite, family: IPFamily): Element => ({
    key: keyOf({ group: '', pod, address }, family),
    timeoutMs: Math.max(1, Math.ceil(neededMs)),
  });

  const fill = (set: string, family: IPFamily): Element[] => {
    const group = groupOfNameSet(set);
    return group === null ? [] : learned.elements(group, family).map((one) => elementOf(one, family));
  };

  return {
    secret,
    get isReplacing() {
      return replacements > 0;
    },
    podsChanged(keys) {
      isProgramming = true;
      policyGroups.clear();
      if (!policies.usesNames && learned.counts().pods === 0) return;
      for (const key of keys) {
        const groups = groupsOf(key);
        const pod = policies.programmed(key);
        const changed = learned.setPod(
          key,
          pod && groups.length > 0 ? { key, addresses: pod.addresses, groups } : null,
        );
        gone.push(...changed.gone);
        fresh.push(...changed.fresh);
        if (groups.length > 0) adoptKept(key);
      }
    },
    restore(set, elements, family) {
      const group = groupOfNameSet(set);
      if (group === null) return [];
      const length = family === 'ipv4' ? 4 : 16;
      for (const { key, expiresMs } of elements) {
        const [pod, address] = [key.subarray(0, length), key.subarray(length, 2 * length)];
        learned.adopt({ group, pod: formatAddress(pod), address: formatAddress(address) }, expiresMs);
      }
      return fill(set, family);
    },
    fill,
    async replacing(replace) {
      replacements++;
      try {
        return await replace();
      } finally {
        replacements--;
      }
    },
    programmed() {
      isProgramming = false;
      const removed = new Map<IPFamily, Map<string, Uint32Array[]>>();
      for (const one of gone) {
        const family = one.address.includes(':') ? 'ipv6' : 'ipv4';
        const sets = removed.get(family) ?? new Map<string, Uint32Array[]>();
        removed.set(family, sets);
        const set = nameSetOf(one.group);
        const keys = sets.get(set) ?? [];
        keys.push(keyOf(one, family));
        sets.set(set, keys);
      }
      gone = [];
      // Those of a set that was written meanwhile are there already.
      for (const one of fresh) if (learned.has(one)) put(one);
      fresh = [];
      return removed;
    },
    write(learning) {
      if (!learning.isCurrent()) return false;
      let areWritten = true;
      for (const one of learning.writes) {
        if (!put(one)) areWritten = false;
        else if (isProgramming) fresh.push(one);
      }
      if (areWritten) learning.confirm();
      return areWritten;
    },
    close: () => writer.close(),
  };
}

/** Reports whether rules with names are in the kernel, of an earlier process. */
export function hasNameSets(netns?: NetnsRef): boolean {
  const connection = new NftConnection(netns);
  try {
    return (['ipv4', 'ipv6'] as const).some((family) =>
      connection.sets(NFPROTO[family], POLICY_TABLE).some(({ name }) => groupOfNameSet(name) !== null),
    );
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  } finally {
    connection.close();
  }
}

const keyOf = ({ pod, address }: NameElement, family: IPFamily): Uint32Array =>
  Uint32Array.from([...wordsOfAddress(pod, family), ...wordsOfAddress(address, family)]);
