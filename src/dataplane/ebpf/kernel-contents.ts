import type { BpfMap } from '../../kernel/bpf/map.ts';
import { formatAddress } from '../../lib/address.ts';
import type { Protocol } from '../../service/model.ts';
import { BackendNumbers } from './backend-numbers.ts';
import { type FrontendEntry, PROTOCOL_NUMBER, readFrontend } from './layout.ts';
import { type Run, SlotRuns } from './slot-runs.ts';

/** What stands in the maps. Keys of frontends as their bytes, in latin1. */
export interface KernelContents {
  readonly frontends: ReadonlyMap<string, FrontendEntry>;
  /** Runs of slots that a frontend leads to. */
  readonly runs: readonly Run[];
  /** Endpoints (`BackendNumbers.key`) and their numbers. */
  readonly backends: ReadonlyMap<string, number>;
  readonly members: readonly Uint8Array[];
  /** Endpoints that have left, as `backends`. */
  readonly departed: readonly string[];
}

export const NOTHING: KernelContents = {
  frontends: new Map(),
  runs: [],
  backends: new Map(),
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
  const backends = new Map<string, number>();
  for (const [key, value] of frontends.entries()) {
    const entry = readFrontend(value);
    entries.set(Buffer.from(key).toString('latin1'), entry);
    const protocol = protocolOf(key[18] ?? 0);
    for (const { first, count } of [entry.pod, entry.node]) {
      if (count === 0 || runs.has(first)) continue;
      runs.set(first, { first, size: SlotRuns.sizeOf(count) });
      for (const slot of endpoints.range(first, count)) {
        const view = new DataView(slot.buffer, slot.byteOffset, slot.byteLength);
        const ip = formatMapped(slot.subarray(0, 16));
        backends.set(BackendNumbers.key(ip, view.getUint16(16), protocol), view.getUint32(24, true));
      }
    }
  }
  return {
    frontends: entries,
    runs: [...runs.values()],
    backends,
    members: members.entries().map(([key]) => key),
    departed: departed.entries().map(([key]) => {
      const port = ((key[16] ?? 0) << 8) | (key[17] ?? 0);
      return BackendNumbers.key(formatMapped(key.subarray(0, 16)), port, protocolOf(key[18] ?? 0));
    }),
  };
}

/** The address that 16 bytes stand for: IPv4 where they begin with ::ffff. */
export function formatMapped(bytes: Uint8Array): string {
  const isIpv4 =
    bytes[10] === 0xff && bytes[11] === 0xff && bytes.subarray(0, 10).every((byte) => byte === 0);
  return formatAddress(isIpv4 ? bytes.subarray(12) : bytes);
}

function protocolOf(number: number): Protocol {
  return number === PROTOCOL_NUMBER.UDP ? 'UDP' : 'TCP';
}
