import type { BpfMap } from '../../kernel/bpf/map.ts';
import type { Clock } from '../../lib/clock.ts';
import { hasFailed, rerouteExpiry } from './entries.ts';
import { FLAG, FLAG_VALUE } from './generated/layout.ts';
import { closeMaps, indexKey, type Maps, openMaps } from './maps.ts';
import { isDraining, markDraining, removeLinks, removePins } from './pins.ts';
import { isDeviceLink } from './tc-attachment.ts';

const DRAIN_CHECK_MS = 5000;

/** Returns true for the links that established rerouted connections need. */
const isForReroutes = (link: string): boolean => link === 'sockOps' || isDeviceLink(link);

/**
 * Deletes expired reroutes; if none remain, the programs stop looking for them. Returns true if some remain. `now`:
 * monotonic ns.
 */
export function expireReroutes(
  { reroutes, flags }: { reroutes: Pick<BpfMap, 'entries' | 'delete'>; flags: BpfMap },
  now: bigint,
): boolean {
  // Read before the search: a reroute that begins during it counts further.
  const count = readFlag(flags, FLAG.REROUTES);
  const hasEnd = flags.maxEntries > FLAG.REROUTES_ENDED;
  if (count === 0 || (hasEnd && count === readFlag(flags, FLAG.REROUTES_ENDED))) return false;
  let alive = false;
  for (const [flow, entry] of reroutes.entries()) {
    const end = rerouteExpiry(entry);
    if (end !== 0n && end < now) reroutes.delete(flow);
    else alive = true;
  }
  // Maps that an earlier version made have no such element: the programs then look for reroutes at each packet.
  if (!alive && hasEnd) writeFlag(flags, FLAG.REROUTES_ENDED, count);
  return alive;
}

/**
 * Clears the flag of failures if no endpoint in use has failed without answering since. Returns true if one
 * has.
 */
export function expireFailures(
  { backends, flags }: Pick<Maps, 'backends' | 'flags'>,
  isUsed: (number: number) => boolean,
): boolean {
  if (readFlag(flags, FLAG.FAILURES) === 0) return false;
  // Cleared first: a failure during the search sets it again.
  writeFlag(flags, FLAG.FAILURES, 0);
  const some = backends.someInMemory((words, number) => hasFailed(words) && isUsed(number));
  if (some) writeFlag(flags, FLAG.FAILURES, 1);
  return some;
}

/** Reads the first field of struct flag_value. */
function readFlag(flags: BpfMap, flag: number): number {
  const value = flags.lookup(indexKey(flag));
  return value ? new DataView(value.buffer, value.byteOffset).getUint32(FLAG_VALUE.is_set, true) : 0;
}

/** Writes struct flag_value. */
const writeFlag = (flags: BpfMap, flag: number, value: number): void =>
  flags.update(indexKey(flag), new Uint8Array(Uint32Array.of(value, 0).buffer));

/**
 * Removes everything pinned at `pinPath` after another mode took over. Programs and maps that established
 * rerouted connections need stay until these have ended: this process then removes them, or `removePins`
 * does, or this mode adopts them when it returns. `onRemoved` is called when everything is removed.
 */
export function drainPins(pinPath: string, clock: Clock, onRemoved: () => void): void {
  const maps = openMaps(pinPath)?.maps;
  try {
    if (!maps || !expireReroutes(maps, process.hrtime.bigint())) {
      removePins(pinPath);
      onRemoved();
      return;
    }
    removeLinks(pinPath, (link) => !isForReroutes(link));
    for (const [key] of maps.frontends.entries()) maps.frontends.delete(key);
    markDraining(pinPath);
  } finally {
    if (maps) closeMaps(maps);
  }
  clock.after(DRAIN_CHECK_MS, () => {
    // Unmarked: the mode is in use again, or the pins were removed.
    if (isDraining(pinPath)) drainPins(pinPath, clock, onRemoved);
  });
}
