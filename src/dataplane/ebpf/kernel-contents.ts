import type { BpfMap } from '../../kernel/bpf/map.ts';
import { formatAddress } from '../../lib/address.ts';
import { BACKEND_KEY_WORDS } from './backend-numbers.ts';
import { type FrontendEntry, readFrontend } from './layout.ts';
import { type Run, SlotRuns } from './slot-runs.ts';

/** What stands in the maps. Keys of frontends as their bytes, in latin1. */
export interface KernelContents {
  readonly frontends: ReadonlyMap<string, FrontendEntry>;
  /** Runs of slots that a frontend leads to. */
  readonly runs: readonly Run[];
  /** Endpoints as `writeKey` writes them, and their numbers. */
  readonly backends: readonly { readonly words: Uint32Array; readonly number: number }[];
  readonly members: readonly Uint8Array[];
  /** Endpoints that have left. */
  readonly departed: readonly Uint8Array[];
}

export const NOTHING: KernelContents = {
  frontends: new Map(),
  runs: [],
  backends: [],
  members: [],
  departed: [],
};

/** Reads what an earlier process left in the maps. */
export function readContents(
  maps: Readonly<Record<'frontends' | 'endpoints' | 'members' | 'departed', BpfMap>>,
): KernelContents {
  const { frontends, endpoints, members, departed } = maps;
  const entries = new Map<string, FrontendEntry>();
  const runs = new Map<number, Run>();
  const backends: { words: Uint32Array; number: number }[] = [];
  for (const [key, value] of frontends.entries()) {
    const entry = readFrontend(value);
    entries.set(Buffer.from(key).toString('latin1'), entry);
    for (const { first, count } of [entry.pod, entry.node]) {
      if (count === 0 || runs.has(first)) continue;
      runs.set(first, { first, size: SlotRuns.sizeOf(count) });
      for (const slot of endpoints.range(first, count)) {
        const words = new Uint32Array(slot.slice().buffer);
        const number = words[6] ?? 0;
        words[4] = ((words[4] ?? 0) & 0xffff) | ((key[18] ?? 0) << 16);
        backends.push({ words: words.subarray(0, BACKEND_KEY_WORDS), number });
      }
    }
  }
  return {
    frontends: entries,
    runs: [...runs.values()],
    backends,
    members: members.entries().map(([key]) => key),
    departed: departed.entries().map(([key]) => key),
  };
}

/** The address that 16 bytes stand for: IPv4 where they begin with ::ffff. */
export function formatMapped(bytes: Uint8Array): string {
  const isIpv4 =
    bytes[10] === 0xff && bytes[11] === 0xff && bytes.subarray(0, 10).every((byte) => byte === 0);
  return formatAddress(isIpv4 ? bytes.subarray(12) : bytes);
}
