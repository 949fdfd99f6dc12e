import { type FrontendEntry, readFrontend, readSlot, readSpared, textOf } from './entries.ts';
import { FRONTEND_KEY } from './generated/layout.ts';
import type { Maps } from './maps.ts';
import { type Run, SlotAllocator } from './slot-allocator.ts';

/** The contents of maps that an earlier process wrote. */
export interface MapContents {
  /** By their keys in latin1. */
  readonly frontends: ReadonlyMap<string, FrontendEntry>;
  /** The runs of slots of a frontend. */
  readonly runs: readonly Run[];
  /** Endpoints' keys as written by `writeKey`, and their numbers; spared ones too. */
  readonly backends: readonly { readonly words: Uint32Array; readonly number: number }[];
  readonly members: readonly Uint8Array[];
  readonly removedBackends: readonly Uint8Array[];
}

export const EMPTY: MapContents = {
  frontends: new Map(),
  runs: [],
  backends: [],
  members: [],
  removedBackends: [],
};

export function readContents({ frontends, endpoints, members, removed_backends }: Maps): MapContents {
  const entries = new Map<string, FrontendEntry>();
  const runs = new Map<number, Run>();
  const backends: MapContents['backends'][number][] = [];
  for (const [key, value] of frontends.entries()) {
    const entry = readFrontend(value);
    entries.set(textOf(key), entry);
    for (const { first, count } of [entry.pod, entry.node]) {
      if (count === 0 || runs.has(first)) continue;
      runs.set(first, { first, size: SlotAllocator.sizeOf(count) });
      const protocol = key[FRONTEND_KEY.protocol] ?? 0;
      for (const slot of endpoints.range(first, count)) backends.push(readSlot(slot, protocol));
    }
  }
  const memberEntries = members.entries();
  for (const [key, value] of memberEntries) {
    const spared = readSpared(key, value);
    if (spared) backends.push(spared);
  }
  return {
    frontends: entries,
    runs: [...runs.values()],
    backends,
    members: memberEntries.map(([key]) => key),
    removedBackends: removed_backends.entries().map(([key]) => key),
  };
}
