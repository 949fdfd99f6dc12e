import { readFrame } from '../../kernel/packet.ts';
import type { ObservedPlace, Sighting } from '../sighting.ts';

/** A place with devices by name; a name with "*" is a bridge's port. */
export function observedPlace(
  name: string,
  devices: readonly string[],
  kind: ObservedPlace['kind'] = 'node',
): ObservedPlace {
  return {
    name,
    kind,
    devices: new Map(
      devices.map((text, index) => [
        index + 1,
        { name: text.replace('*', ''), text: text.replace('*', ''), isPort: text.endsWith('*') },
      ]),
    ),
  };
}

/** A sighting of a frame: `at` is "in eth0" or "out eth0" of the place. */
export function sighting(
  place: ObservedPlace,
  at: string,
  timeUs: number,
  frame: Uint8Array,
  tunnelPort: number | null = null,
): Sighting {
  const [direction, ...words] = at.split(' ');
  const name = words.join(' ');
  const device = [...place.devices.values()].find((one) => one.name === name);
  const packet = readFrame(frame, tunnelPort);
  if (!device || !packet) throw new Error(`no such device or not a packet: ${place.name} ${at}`);
  const timeNs = BigInt(timeUs) * 1000n;
  return { place, device, direction: direction === 'in' ? 'in' : 'out', timeNs, packet };
}
