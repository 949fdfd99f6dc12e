import type { Clock } from '../../lib/clock.ts';
import { isDeviceLink } from './device-ways.ts';
import { hasFailed, rescueEnd, STATE } from './layout.ts';
import { isLeaving, markLeaving, removeLinks, removePins } from './pins.ts';
import { closeMaps, type Maps, openMaps } from './socket-programs.ts';

const keyOf = (what: number): Uint8Array => new Uint8Array(Uint32Array.of(what).buffer);
const RETURN_MS = 5000;
/** The links that established rerouted connections need. */
const isForRescued = (link: string): boolean => link === 'sockOps' || isDeviceLink(link);

/** Forgets the flows that have ended; when there are none, packets are not looked up any more. True when some live. */
export function sweepRescues({ rescues, state }: Pick<Maps, 'rescues' | 'state'>, now: bigint): boolean {
  const key = keyOf(STATE.rescues);
  const value = state.lookup(key);
  if (!value?.some((byte) => byte !== 0)) return false;
  let alive = false;
  for (const [flow, entry] of rescues.entries()) {
    const end = rescueEnd(entry);
    if (end !== 0n && end < now) rescues.delete(flow);
    else alive = true;
  }
  // A rescue that comes between the two is found out at its connection's next timeout, a tenth of a second later.
  if (!alive) state.update(key, new Uint8Array(value.length));
  return alive;
}

/**
 * When no endpoint in use has failed without having answered since, nobody has to look whether one has. True when some
 * have.
 */
export function sweepFailures(
  { backends, state }: Pick<Maps, 'backends' | 'state'>,
  isUsed: (number: number) => boolean,
): boolean {
  const key = keyOf(STATE.failures);
  const value = state.lookup(key);
  if (!value?.some((byte) => byte !== 0)) return false;
  // What fails from here on says so anew.
  state.update(key, new Uint8Array(value.length));
  const some = backends.someInMemory((words, number) => hasFailed(words) && isUsed(number));
  if (some) state.update(key, value);
  return some;
}

/**
 * Takes everything pinned at `pinPath` away when another mode carries Services. What connections that were rescued, or
 * came in by the uplink, live by stays for as long as there are any: this process takes it away later; else whoever removes the pins does, or this
 * mode when it comes back, which finds them. `onLast` is called when nothing is left.
 */
export function leavePins(pinPath: string, clock: Clock, onLast: () => void): void {
  const found = openMaps(pinPath);
  if (!found) {
    removePins(pinPath);
    onLast();
    return;
  }
  const { maps } = found;
  try {
    if (!sweepRescues(maps, process.hrtime.bigint())) {
      removePins(pinPath);
      onLast();
      return;
    }
    removeLinks(pinPath, (link) => !isForRescued(link));
    for (const [key] of maps.frontends.entries()) maps.frontends.delete(key);
    markLeaving(pinPath);
  } finally {
    closeMaps(maps);
  }
  clock.after(RETURN_MS, () => {
    // Else it is at work again or about to be, or somebody else has removed it.
    if (isLeaving(pinPath)) leavePins(pinPath, clock, onLast);
  });
}
