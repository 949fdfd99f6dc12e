import { familyOf, type IPFamily } from '../lib/address.ts';
import type { LearnedAddress } from './model.ts';
import { indexNames, matchesNames, type NameGroup } from './name-group.ts';
import {
  givenMs,
  MAX_ADDRESSES_OF_NAME,
  MAX_ADDRESSES_OF_NODE,
  MAX_ADDRESSES_OF_POD,
  MAX_NAMES_OF_POD,
  neededMs,
} from './name-limits.ts';

/** A pod of this node with rules that have names. */
export interface NamedPod {
  /** "namespace/name" */
  readonly key: string;
  /** Canonical. */
  readonly addresses: readonly string[];
  readonly groups: readonly NameGroup[];
}

/** An element of the set of a group. */
export interface NameElement {
  readonly group: string;
  /** An address of the pod, of the same family as the other. */
  readonly pod: string;
  readonly address: string;
}

/** An element that the kernel has to have for at least so long. */
export interface NameWrite extends NameElement {
  readonly neededMs: number;
}

export type NameBound =
  | 'addresses of a name'
  | 'names of a pod'
  | 'addresses of a pod'
  | 'addresses of a node';

export interface Learning {
  /** What the kernel does not have for long enough; to be confirmed. */
  readonly writes: readonly NameWrite[];
  /** Reports that the kernel has the writes. */
  confirm(): void;
  /** Whether the pod is still the one that asked: its address may be another's by now. */
  isCurrent(): boolean;
  /** The bound for which addresses were left out; null: none was. */
  readonly bound: NameBound | null;
  /** Addresses that no name may allow. */
  readonly inside: readonly string[];
}

/** An address that a pod got, as it is kept in a file. `until`: in milliseconds since 1970. */
export interface KeptName {
  readonly pod: string;
  readonly podAddresses: readonly string[];
  readonly address: string;
  readonly names: readonly string[];
  readonly until: number;
}

export interface LearnedNamesOptions {
  /** Milliseconds that never go back. */
  readonly now: () => number;
  /** Milliseconds since 1970. */
  readonly wallClock: () => number;
  /** Reports whether no name may allow an address: those of the cluster, of this machine, link-local ones. */
  readonly isInside: (address: string) => boolean;
}

/**
 * The addresses that the pods of a node got for names: what the kernel's sets contain. Each pod has its own: an address that
 * one pod asked for is not allowed to another.
 */
export interface LearnedNames {
  /**
   * Sets a pod, or that it is gone or has no such rules (null). Returns elements that the kernel must no longer have, and those of
   * earlier answers that it needs for new groups.
   */
  setPod(key: string, pod: NamedPod | null): { readonly gone: NameElement[]; readonly fresh: NameWrite[] };
  pods(): Iterable<NamedPod>;
  /** Returns whether a rule of the pod has a pattern that matches a name (`plainName`). */
  wants(key: string, name: string): boolean;
  /** Records the addresses (canonical) of an answer to a pod. `ttl`: in seconds. */
  learn(key: string, name: string, addresses: readonly string[], ttl: number): Learning;
  /** Records an element that the kernel has, or a file had. Returns whether the pod exists and still has such a rule. */
  adopt(element: NameElement, remainingMs: number, names?: readonly string[]): boolean;
  find(pod: string, group: string, address: string): LearnedAddress | null;
  /** Whether the pod that has the element's first address now got the other. */
  has(element: NameElement): boolean;
  /** Returns the name for which a pod got an address; null: none. */
  nameOf(pod: string, address: string): string | null;
  /** Returns the live elements of a group's set. */
  elements(group: string, family: IPFamily): NameWrite[];
  /** A number that changes with what is kept. */
  readonly revision: number;
  /** Forgets what has expired. */
  expire(): void;
  counts(): { readonly pods: number; readonly names: number; readonly addresses: number };
  /** Returns what is worth keeping in a file. */
  kept(): KeptName[];
}

/** The latest names of an address that are remembered. */
const MAX_NAMES_OF_ADDRESS = 2;
/** A pod that is at its bound is searched for expired addresses at most this often. */
const SWEEP_MS = 1000;

interface Entry {
  /** By `now`. */
  until: number;
  /** The latest first. */
  names: string[];
  /** The name that it counts for. */
  readonly counted: string;
}

interface GroupState {
  readonly group: NameGroup;
  readonly entries: Map<string, Entry>;
}

interface PodState {
  pod: NamedPod;
  readonly groups: Map<string, GroupState>;
  /** Returns the groups that match a name. */
  matching: (name: string) => readonly GroupState[];
  /** Addresses of each name, in all groups. */
  readonly names: Map<string, number>;
  count: number;
  sweptAt: number;
}

export function createLearnedNames({ now, wallClock, isInside }: LearnedNamesOptions): LearnedNames {
  const pods = new Map<string, PodState>();
  const byAddress = new Map<string, PodState>();
  let total = 0;
  let revision = 0;

  const ownOf = ({ pod }: PodState, address: string): readonly string[] => {
    const isV6 = address.includes(':');
    return pod.addresses.filter((own) => own.includes(':') === isV6);
  };

  function put(state: PodState, entries: Map<string, Entry>, address: string, entry: Entry): void {
    entries.set(address, entry);
    state.names.set(entry.counted, (state.names.get(entry.counted) ?? 0) + 1);
    state.count++;
    total++;
    revision++;
  }

  function remove(state: PodState, entries: Map<string, Entry>, address: string, entry: Entry): void {
    if (!entries.delete(address)) return;
    const left = (state.names.get(entry.counted) ?? 1) - 1;
    if (left > 0) state.names.set(entry.counted, left);
    else state.names.delete(entry.counted);
    state.count--;
    total--;
    revision++;
  }

  function sweep(state: PodState, time: number): void {
    state.sweptAt = time;
    for (const { entries } of state.groups.values())
      for (const [address, entry] of entries) if (entry.until <= time) remove(state, entries, address, entry);
  }

  /** Returns the bound that one more address of a name would exceed; expired ones do not count. */
  function boundFor(state: PodState, name: string, time: number): NameBound | null {
    const found = (): NameBound | null => {
      // Without a name: an earlier agent knew it, and had these bounds.
      if (name !== '' && (state.names.get(name) ?? 0) >= MAX_ADDRESSES_OF_NAME) return 'addresses of a name';
      if (name !== '' && !state.names.has(name) && state.names.size >= MAX_NAMES_OF_POD)
        return 'names of a pod';
      if (state.count >= MAX_ADDRESSES_OF_POD) return 'addresses of a pod';
      return total >= MAX_ADDRESSES_OF_NODE ? 'addresses of a node' : null;
    };
    const first = found();
    if (first === null || time - state.sweptAt < SWEEP_MS) return first;
    sweep(state, time);
    return found();
  }

  const withName = (names: readonly string[], name: string): string[] =>
    [name, ...names.filter((one) => one !== name)].slice(0, MAX_NAMES_OF_ADDRESS);

  function removePod(state: PodState): NameElement[] {
    const gone: NameElement[] = [];
    for (const [group, { entries }] of state.groups) {
      for (const [address, entry] of entries) {
        for (const pod of ownOf(state, address)) gone.push({ group, pod, address });
        remove(state, entries, address, entry);
      }
    }
    for (const own of state.pod.addresses) if (byAddress.get(own) === state) byAddress.delete(own);
    pods.delete(state.pod.key);
    return gone;
  }

  /** Returns the live addresses of all groups of a pod, with their names. */
  function known(state: PodState, time: number): Map<string, Entry> {
    const all = new Map<string, Entry>();
    for (const { entries } of state.groups.values()) {
      for (const [address, entry] of entries) {
        if (entry.until <= time) continue;
        const other = all.get(address);
        const names = other ? [...new Set([...entry.names, ...other.names])] : entry.names;
        all.set(address, { ...entry, names, until: Math.max(entry.until, other?.until ?? 0) });
      }
    }
    return all;
  }

  function addPod(pod: NamedPod): PodState {
    const state: PodState = {
      pod,
      groups: new Map(),
      matching: () => [],
      names: new Map(),
      count: 0,
      sweptAt: Number.NEGATIVE_INFINITY,
    };
    pods.set(pod.key, state);
    return state;
  }

  return {
    setPod(key, pod) {
      const before = pods.get(key);
      const gone: NameElement[] = [];
      const fresh: NameWrite[] = [];
      if (before && pod?.addresses.join() !== before.pod.addresses.join()) gone.push(...removePod(before));
      if (!pod) return { gone, fresh };
      const time = now();
      const state = pods.get(key) ?? addPod(pod);
      const earlier = known(state, time);
      state.pod = pod;
      for (const own of pod.addresses) byAddress.set(own, state);
      const wanted = new Set(pod.groups.map(({ id }) => id));
      for (const [id, { entries }] of state.groups) {
        if (wanted.has(id)) continue;
        for (const [address, entry] of entries) {
          for (const own of ownOf(state, address)) gone.push({ group: id, pod: own, address });
          remove(state, entries, address, entry);
        }
        state.groups.delete(id);
      }
      for (const group of pod.groups) {
        if (state.groups.has(group.id)) continue;
        const entries = new Map<string, Entry>();
        state.groups.set(group.id, { group, entries });
        for (const [address, entry] of earlier) {
          const name = entry.names.find((one) => matchesNames(group, one));
          if (name === undefined || boundFor(state, name, time) !== null) continue;
          put(state, entries, address, { until: entry.until, names: [...entry.names], counted: name });
          for (const own of ownOf(state, address))
            fresh.push({ group: group.id, pod: own, address, neededMs: entry.until - time });
        }
      }
      state.matching = indexNames([...state.groups.values()].map((one) => [one.group, one]));
      return { gone, fresh };
    },
    *pods() {
      for (const { pod } of pods.values()) yield pod;
    },
    wants: (key, name) => (pods.get(key)?.matching(name).length ?? 0) > 0,
    learn(key, name, addresses, ttl) {
      const state = pods.get(key);
      const time = now();
      const needed = neededMs(ttl);
      const writes: NameWrite[] = [];
      const confirms: (() => void)[] = [];
      const inside: string[] = [];
      let bound: NameBound | null = addresses.length > MAX_ADDRESSES_OF_NAME ? 'addresses of a name' : null;
      const groups = state?.matching(name) ?? [];
      for (const address of groups.length === 0 ? [] : addresses.slice(0, MAX_ADDRESSES_OF_NAME)) {
        if (!state) break;
        const own = ownOf(state, address);
        // Of a family that the pod does not have.
        if (own.length === 0) continue;
        const known = groups.map(({ entries }) => entries.get(address));
        const isKnown = known.every((entry) => entry !== undefined && entry.until - time >= needed);
        if (!isKnown && isInside(address)) {
          inside.push(address);
          continue;
        }
        for (const [index, { group, entries }] of groups.entries()) {
          const entry = known[index];
          if (entry && entry.until - time >= needed) {
            if (entry.names[0] !== name) entry.names = withName(entry.names, name);
            continue;
          }
          const full = entry ? null : boundFor(state, name, time);
          if (full !== null) {
            bound = full;
            continue;
          }
          for (const pod of own) writes.push({ group: group.id, pod, address, neededMs: givenMs(needed) });
          const until = time + givenMs(needed);
          // Counted from now on: an answer of many addresses must not exceed the bounds.
          const next = entry ?? { until: time, names: [name], counted: name };
          if (!entry) put(state, entries, address, next);
          confirms.push(() => {
            next.until = Math.max(next.until, until);
            next.names = withName(next.names, name);
          });
        }
      }
      const confirm = () => {
        if (confirms.length > 0) revision++;
        for (const one of confirms) one();
      };
      return { writes, confirm, isCurrent: () => pods.get(key) === state, bound, inside };
    },
    adopt({ group, pod, address }, remainingMs, names = []) {
      const state = byAddress.get(pod);
      const found = state?.groups.get(group);
      if (!state || !found || remainingMs <= 0) return false;
      const until = now() + remainingMs;
      const entry = found.entries.get(address);
      if (entry) {
        entry.until = Math.max(entry.until, until);
        for (const name of names.toReversed()) entry.names = withName(entry.names, name);
      } else {
        if (boundFor(state, names[0] ?? '', now()) !== null) return false;
        put(state, found.entries, address, {
          until,
          names: names.slice(0, MAX_NAMES_OF_ADDRESS),
          counted: names[0] ?? '',
        });
      }
      return true;
    },
    find(pod, group, address) {
      const entry = pods.get(pod)?.groups.get(group)?.entries.get(address);
      const time = now();
      if (!entry || entry.until <= time) return null;
      return { name: entry.names[0] ?? '', until: wallClock() + entry.until - time };
    },
    has: ({ group, pod, address }) => byAddress.get(pod)?.groups.get(group)?.entries.has(address) ?? false,
    nameOf(pod, address) {
      for (const { entries } of pods.get(pod)?.groups.values() ?? []) {
        const name = entries.get(address)?.names[0];
        if (name !== undefined) return name;
      }
      return null;
    },
    elements(group, family) {
      const time = now();
      const all: NameWrite[] = [];
      for (const state of pods.values()) {
        for (const [address, { until }] of state.groups.get(group)?.entries ?? []) {
          if (until <= time || familyOf(address) !== family) continue;
          for (const pod of ownOf(state, address)) all.push({ group, pod, address, neededMs: until - time });
        }
      }
      return all;
    },
    get revision() {
      return revision;
    },
    expire() {
      const time = now();
      for (const state of pods.values()) sweep(state, time);
    },
    counts() {
      let names = 0;
      for (const state of pods.values()) names += state.names.size;
      return { pods: pods.size, names, addresses: total };
    },
    kept() {
      const time = now();
      const wall = wallClock();
      return [...pods.values()].flatMap((state) =>
        [...known(state, time)].map(([address, { names, until }]) => ({
          pod: state.pod.key,
          podAddresses: state.pod.addresses,
          address,
          names,
          until: Math.round(wall + until - time),
        })),
      );
    },
  };
}
