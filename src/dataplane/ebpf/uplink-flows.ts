import { closeSync, existsSync } from 'node:fs';
import { BpfMap, createMap, isLike, mapInfo } from '../../kernel/bpf/map.ts';
import { openPin, pin, unpin } from '../../kernel/bpf/pin.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { isUplinkLink, removeUplinkFilters } from './device-ways.ts';
import { mapPin, removeLinks } from './pins.ts';
import { asLeaving, DIRECTION, readUplinkFlow, UPLINK_MAPS, type UplinkMapName } from './uplink-layout.ts';

export type UplinkMaps = Readonly<Record<UplinkMapName, BpfMap>>;

const CONFIG_KEY = new Uint8Array(4);
const SECOND = 1_000_000_000n;
/** After how long without a packet a flow is forgotten, in ns; `leaving`: another mode carries new ones already. */
const IDLE = {
  ended: { staying: 60n * SECOND, leaving: 2n * SECOND },
  datagrams: { staying: 180n * SECOND, leaving: 30n * SECOND },
  // As long as connection tracking remembers an established connection that kube-proxy has configured.
  connection: { staying: 86_400n * SECOND, leaving: 3600n * SECOND },
} as const;

/** The maps that an earlier process left; null where some are missing or of another kind. */
export function openUplinkMaps(pinPath: string): UplinkMaps | null {
  const opened: Partial<Record<UplinkMapName, BpfMap>> = {};
  for (const [name, definition] of Object.entries(UPLINK_MAPS)) {
    const fd = openPin(mapPin(pinPath, name));
    if (fd !== null && isLike(mapInfo(fd), definition)) {
      opened[name as UplinkMapName] = new BpfMap(fd, definition);
      continue;
    }
    if (fd !== null) closeSync(fd);
    closeUplinkMaps(opened);
    return null;
  }
  return opened as UplinkMaps;
}

/** Makes the maps and pins them. */
export function makeUplinkMaps(pinPath: string): UplinkMaps {
  const made: Partial<Record<UplinkMapName, BpfMap>> = {};
  try {
    for (const [name, definition] of Object.entries(UPLINK_MAPS)) {
      const created = createMap(definition);
      made[name as UplinkMapName] = created;
      const path = mapPin(pinPath, name);
      unpin(path);
      pin(created.fd, path);
    }
  } catch (error) {
    closeUplinkMaps(made);
    throw error;
  }
  return made as UplinkMaps;
}

export function closeUplinkMaps(maps: Partial<UplinkMaps>): void {
  for (const one of Object.values(maps)) one?.close();
}

/** Forgets the flows that are over; true when there are others. `now` in monotonic nanoseconds. */
export function sweepUplinkFlows(flows: BpfMap, now: bigint, isLeaving: boolean): boolean {
  const limit = isLeaving ? 'leaving' : 'staying';
  const entries = new Map(
    flows.entries().map(([key, value]) => [textOf(key), { key, flow: readUplinkFlow(key, value) }]),
  );
  let alive = false;
  for (const { key, flow } of entries.values()) {
    const other = entries.get(textOf(flow.other))?.flow;
    if (flow.direction === DIRECTION.fromEndpoint) {
      // The other side's has been forgotten for want of room, or leads to another endpoint by now.
      if (!other || textOf(other.other) !== textOf(key)) flows.delete(key);
      continue;
    }
    const answered = other !== undefined && other.seen > 0n;
    const ended = !answered || flow.reset || other.reset || (flow.finished && other.finished);
    const kind = flow.isTcp ? (ended ? 'ended' : 'connection') : 'datagrams';
    const last = answered && other.seen > flow.seen ? other.seen : flow.seen;
    if (now - last < IDLE[kind][limit]) {
      if (flow.direction === DIRECTION.toEndpoint) alive = true;
      continue;
    }
    flows.delete(key);
    if (flow.direction === DIRECTION.toEndpoint) flows.delete(flow.other);
  }
  return alive;
}

/**
 * Has the programs at an uplink begin no more flows: new ones are nf_tables' from now on. True while there are flows
 * that live by the programs; when it is false, nothing needs them any more.
 */
export function leaveUplink(pinPath: string): boolean {
  const maps = openUplinkMaps(pinPath);
  if (!maps) return false;
  try {
    const config = maps.uplink_config.lookup(CONFIG_KEY);
    if (config) maps.uplink_config.update(CONFIG_KEY, asLeaving(config));
    return sweepUplinkFlows(maps.uplink_flows, process.hrtime.bigint(), true);
  } finally {
    closeUplinkMaps(maps);
  }
}

/** Whether an earlier or this process has programs at an uplink. */
export function hasUplink(pinPath: string): boolean {
  return existsSync(mapPin(pinPath, 'uplink_config'));
}

/** Takes programs and maps of an uplink away, whatever lives by them. */
export function removeUplink(pinPath: string, netns: NetnsRef | undefined): void {
  removeLinks(pinPath, isUplinkLink);
  removeUplinkFilters(netns);
  for (const name of Object.keys(UPLINK_MAPS)) unpin(mapPin(pinPath, name));
}

const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');
