import { closeSync } from 'node:fs';
import { BpfMap, createMap, isLike, type MapDefinition, mapInfo } from '../../kernel/bpf/map.ts';
import { openPin, pin, unpin } from '../../kernel/bpf/pin.ts';
import { recordOf } from '../../lib/record-of.ts';
import { MAPS } from './generated/layout.ts';
import type { Sink } from './map-writer.ts';
import { mapPin } from './pins.ts';

/** The maps of this mode; the other one belongs to `syn-timeout.ts`. */
export type MapName = Exclude<keyof typeof MAPS, 'service_networks'>;
export type Maps = Readonly<Record<MapName, BpfMap>>;

/** Maps that are replaced by larger ones when the cluster outgrows them; all others are kept. */
const GROWING = ['frontends', 'endpoints', 'backends', 'members'] as const;

/** The capacities of the growing maps: frontends, slots, backends, and members of frontends with affinity. */
export type Capacity = Readonly<Record<(typeof GROWING)[number], number>>;

const NAMES = Object.keys(MAPS).filter((name): name is MapName => name !== 'service_networks');

/** Returns the key of an array's element. */
export const indexKey = (index: number): Uint8Array => new Uint8Array(Uint32Array.of(index).buffer);

export const isCapacity = (is: (a: number, b: number) => boolean, a: Capacity, b: Capacity): boolean =>
  GROWING.every((name) => is(a[name], b[name]));

export const doubled = (capacity: Capacity): Capacity => recordOf(GROWING, (name) => capacity[name] * 2);

/** Opens the maps that an earlier process pinned; returns null if one is missing or has another type. */
export function openMaps(pinPath: string): { maps: Maps; capacity: Capacity } | null {
  const opened: Partial<Record<MapName, BpfMap>> = {};
  for (const name of NAMES) {
    const definition: MapDefinition = MAPS[name];
    const fd = openPin(mapPin(pinPath, name));
    const info = fd === null ? null : mapInfo(fd);
    if (fd === null || !info || !isLike(info, definition)) {
      if (fd !== null) closeSync(fd);
      closeMaps(opened);
      return null;
    }
    opened[name] = new BpfMap(fd, { ...definition, maxEntries: info.maxEntries });
  }
  const maps = opened as Maps;
  return { maps, capacity: recordOf(GROWING, (name) => maps[name].maxEntries) };
}

/** Creates maps of this capacity, keeping those of `earlier` that do not grow. Does not pin them. */
export function makeMaps(capacity: Capacity, earlier: Maps | null): Maps {
  const made: Partial<Record<MapName, BpfMap>> = {};
  try {
    for (const name of NAMES) {
      const definition: MapDefinition = MAPS[name];
      if (name in capacity) {
        made[name] = createMap({ ...definition, maxEntries: capacity[name as keyof Capacity] });
      } else made[name] = earlier?.[name] ?? createMap(definition);
    }
  } catch (error) {
    closeMaps(made, earlier);
    throw error;
  }
  return made as Maps;
}

export function pinMaps(maps: Maps, pinPath: string): void {
  for (const name of NAMES) {
    const path = mapPin(pinPath, name);
    unpin(path);
    pin(maps[name].fd, path);
  }
}

/** Closes maps except those that are also in `kept`. */
export function closeMaps(maps: Partial<Maps>, kept: Maps | null = null): void {
  for (const name of NAMES) if (kept?.[name] !== maps[name]) maps[name]?.close();
}

/** Writes the changes of a `ForwardingTable` to the kernel's maps. */
export function sinkOf(maps: Maps): Sink {
  return {
    write(name, elements) {
      // No route uses the slots being written, so no program reads a partially written one.
      if (name === 'endpoints') elements.flushToMemory(maps.endpoints);
      else elements.flush(maps[name]);
    },
    delete(name, keys) {
      for (const key of keys) maps[name].delete(key);
    },
  };
}
