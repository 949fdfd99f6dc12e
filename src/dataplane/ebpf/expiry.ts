import type { BpfMap } from '../../kernel/bpf/map.ts';
import type { Clock } from '../../lib/clock.ts';
import { hasFailed, rerouteExpiry } from './entries.ts';
import { FLAG } from './generated/layout.ts';
import { closeMaps, indexKey, type Maps, openMaps } from './maps.ts';
import { isDraining, markDraining, removeLinks, removePins } from './pins.ts';
import { isDeviceLink } from './tc-attachment.ts';

const DRAIN_CHECK_MS = 5000;

/** Returns true for the links that established rerouted connections need. */
const isForReroutes = (link: string): boolean => link === 'sockOps' || isDeviceLink(link);

/**
 * Deletes expired reroutes; clears the flag if none remain. Returns true if some remain. `now`: monotonic
 * ns.
 */
export function expireReroutes({ reroutes, flags }: Pick<Maps, 'reroutes' | 'flags'>, now: bigint): boolean {
  if (!isSet(flags, FLAG.REROUTES)) return false;
  let alive = false;
  for (const [flow, entry] of reroutes.entries()) {
    const end = rerouteExpiry(entry);
    if (end !== 0n && end < now) reroutes.delete(flow);
    else alive = true;
  }
  // A reroute between the two is lost until the connection's next timeout, a tenth of a second later, sets
  // the flag again.
  if (!alive) setFlag(flags, FLAG.REROUTES, 0);
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
  if (!isSet(flags, FLAG.FAILURES)) return false;
  // Cleared first: a failure during the search sets it again.
  setFlag(flags, FLAG.FAILURES, 0);
  const some = backends.someInMemory((words, number) => hasFailed(words) && isUsed(number));
  if (some) setFlag(flags, FLAG.FAILURES, 1);
  return some;
}

const isSet = (flags: BpfMap, flag: number): boolean =>
  flags.lookup(indexKey(flag))?.some((byte) => byte !== 0) ?? false;

/** Writes struct flag_value. */
const setFlag = (flags: BpfMap, flag: number, value: 0 | 1): void =>
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
