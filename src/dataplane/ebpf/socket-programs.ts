import { closeSync, mkdirSync, openSync, statSync } from 'node:fs';
import { type BpfLink, linkCgroup, linkInfo, openLink, updateLink } from '../../kernel/bpf/link.ts';
import { BpfMap, createMap, isLike, mapInfo } from '../../kernel/bpf/map.ts';
import { readObject, relocate } from '../../kernel/bpf/object.ts';
import { openPin, pin, unpin } from '../../kernel/bpf/pin.ts';
import { type AttachPoint, type BpfProgram, loadProgramAside } from '../../kernel/bpf/program.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { DevicePrograms } from './device-programs.ts';
import { OBJECT as FAILOVER } from './generated/failover.ts';
import { OBJECT as SOCKET_LB } from './generated/socket-lb.ts';
import { type Capacity, type DeviceHook, HOOKS, type MapName, mapDefinitions } from './layout.ts';
import { linkPin, mapPin, removeLinks } from './pins.ts';

export type Maps = Readonly<Record<MapName, BpfMap>>;
/** Programs of a control group. */
export type Programs = ReadonlyMap<AttachPoint, BpfProgram>;
export type Links = ReadonlyMap<AttachPoint, BpfLink>;

const CGROUP_HOOKS = Object.values(HOOKS).flatMap(({ place, attach }) =>
  place === 'cgroup' ? [attach] : [],
);
/** Maps that go on when others are made anew for more room: what they hold does not depend on those. */
const LASTING: readonly MapName[] = [
  'affinities',
  'peers',
  'udp_talks',
  'config',
  'pending_flows',
  'rescues',
  'departed',
  'state',
  'events',
];

/** The maps that an earlier process left, or null when some are missing or of another kind. */
export function openMaps(pinPath: string): { maps: Maps; capacity: Capacity } | null {
  const opened: Partial<Record<MapName, BpfMap>> = {};
  const definitions = Object.entries(mapDefinitions({ frontends: 1, endpoints: 1, backends: 1, members: 1 }));
  for (const [name, definition] of definitions) {
    const fd = openPin(mapPin(pinPath, name as MapName));
    const info = fd === null ? null : mapInfo(fd);
    if (fd === null || !info || !isLike(info, definition)) {
      if (fd !== null) closeSync(fd);
      closeMaps(opened);
      return null;
    }
    opened[name as MapName] = new BpfMap(fd, { ...definition, maxEntries: info.maxEntries });
  }
  const maps = opened as Maps;
  const { frontends, endpoints, backends, members } = maps;
  return {
    maps,
    capacity: {
      frontends: frontends.maxEntries,
      endpoints: endpoints.maxEntries,
      backends: backends.maxEntries,
      members: members.maxEntries,
    },
  };
}

/** Makes maps of this capacity; `earlier` gives those that go on. Nothing is pinned yet. */
export function makeMaps(capacity: Capacity, earlier: Maps | null): Maps {
  const made: Partial<Record<MapName, BpfMap>> = {};
  try {
    for (const [key, definition] of Object.entries(mapDefinitions(capacity))) {
      const name = key as MapName;
      made[name] = earlier && LASTING.includes(name) ? earlier[name] : createMap(definition);
    }
  } catch (error) {
    for (const name of Object.keys(made) as MapName[])
      if (earlier?.[name] !== made[name]) made[name]?.close();
    throw error;
  }
  return made as Maps;
}

export function pinMaps(maps: Maps, pinPath: string): void {
  for (const [name, map] of Object.entries(maps)) {
    const path = mapPin(pinPath, name as MapName);
    unpin(path);
    pin(map.fd, path);
  }
}

/** Closes maps but those that `kept` has too. */
export function closeMaps(maps: Partial<Maps>, kept: Maps | null = null): void {
  for (const [name, map] of Object.entries(maps)) if (kept?.[name as MapName] !== map) map?.close();
}

/** Loads the programs with these maps: all or none. Throws FairleadError with the verifier's words. */
export async function loadPrograms(maps: Maps): Promise<{ sockets: Programs; devices: DevicePrograms }> {
  const descriptors = new Map(Object.entries(maps).map(([name, map]) => [name, map.fd]));
  const sockets = new Map<AttachPoint, BpfProgram>();
  const devices = new Map<DeviceHook, BpfProgram>();
  try {
    for (const text of [SOCKET_LB, FAILOVER]) {
      const { license, programs } = readObject(Buffer.from(text, 'base64'));
      for (const { name, section, ...program } of programs) {
        const hook = HOOKS[section];
        if (!hook) continue;
        const { type, place, attach } = hook;
        const instructions = relocate({ name, section, ...program }, descriptors);
        // A program of the kind tc is told where it works when it is attached.
        const source = { name, type, instructions, license };
        if (place === 'device') devices.set(attach as DeviceHook, await loadProgramAside(source));
        else sockets.set(attach, await loadProgramAside({ ...source, attach }));
      }
    }
  } catch (error) {
    closePrograms(sockets);
    closePrograms(devices);
    throw error;
  }
  return { sockets, devices };
}

export function closePrograms(programs: Programs | DevicePrograms): void {
  for (const program of programs.values()) program.close();
}

/** The control group's directory, made where it is missing. */
export function makeControlGroup(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw new FairleadError(`control group ${path} cannot be made`, {
      op: 'make control group',
      code: hasCode(error, 'EROFS', 'EACCES') ? 'EACCES' : 'EIO',
      object: path,
      hint: 'mount the cgroup v2 hierarchy writable',
      cause: error,
    });
  }
}

/**
 * Has the programs work at a control group, in place of those that an earlier process left, each without a moment
 * between; those of other hooks than `wanted` are taken away. Undoes what it attached if one cannot be.
 */
export function attachPrograms(
  programs: Programs,
  cgroup: string,
  pinPath: string,
  wanted: ReadonlySet<AttachPoint>,
): Links {
  const links = new Map<AttachPoint, BpfLink>();
  const fresh: AttachPoint[] = [];
  try {
    for (const [hook, program] of programs) {
      if (!wanted.has(hook)) {
        removeLinks(pinPath, (name) => name === hook);
        continue;
      }
      const { link, isFresh } = attachProgram(program, hook, cgroup, pinPath);
      links.set(hook, link);
      if (isFresh) fresh.push(hook);
    }
    return links;
  } catch (error) {
    for (const hook of fresh) unpin(linkPin(pinPath, hook));
    for (const link of links.values()) link.close();
    throw error;
  }
}

/** Has one program work at a control group, as `attachPrograms`. */
export function attachProgram(
  program: BpfProgram,
  hook: AttachPoint,
  cgroup: string,
  pinPath: string,
): { link: BpfLink; isFresh: boolean } {
  const path = linkPin(pinPath, hook);
  const pinned = openPin(path);
  if (pinned !== null) {
    const link = openLink(pinned);
    if (linkInfo(pinned).cgroupId === statSync(cgroup, { bigint: true }).ino) {
      updateLink(pinned, program.fd);
      return { link, isFresh: false };
    }
    // Of a control group that is gone, or of another configuration.
    unpin(path);
    link.close();
  }
  const cgroupFd = openSync(cgroup, 'r');
  try {
    const link = linkCgroup(program.fd, cgroupFd, hook);
    pin(link.fd, path);
    return { link, isFresh: true };
  } finally {
    closeSync(cgroupFd);
  }
}

/** Which links are missing or lead elsewhere, or are there though they are not wanted. */
export function brokenLinks(
  links: Links,
  cgroup: string,
  pinPath: string,
  wanted: ReadonlySet<AttachPoint>,
): AttachPoint[] {
  const cgroupId = statSync(cgroup, { bigint: true, throwIfNoEntry: false })?.ino;
  return CGROUP_HOOKS.filter((hook) => {
    const link = links.get(hook);
    const pinned = openPin(linkPin(pinPath, hook));
    if (pinned !== null) closeSync(pinned);
    if (!wanted.has(hook)) return pinned !== null;
    return !link || pinned === null || linkInfo(link.fd).cgroupId !== cgroupId;
  });
}

/** Every hook of a control group but those of this kind, which cost every packet something. */
export function socketHooks(withPackets: boolean): ReadonlySet<AttachPoint> {
  return new Set(CGROUP_HOOKS.filter((hook) => withPackets || hook !== 'inetEgress'));
}
