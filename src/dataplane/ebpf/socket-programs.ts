import { closeSync, mkdirSync, openSync, statSync } from 'node:fs';
import { type BpfLink, linkCgroup, linkInfo, openLink, updateLink } from '../../kernel/bpf/link.ts';
import { BpfMap, createMap, isLike, mapInfo } from '../../kernel/bpf/map.ts';
import { readObject, relocate } from '../../kernel/bpf/object.ts';
import { openPin, pin, unpin } from '../../kernel/bpf/pin.ts';
import { type AttachPoint, type BpfProgram, loadProgram } from '../../kernel/bpf/program.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { OBJECT } from './generated/socket-lb.ts';
import { type Capacity, type MapName, mapDefinitions, SOCKET_HOOKS } from './layout.ts';
import { linkPin, mapPin } from './pins.ts';

export type Maps = Readonly<Record<MapName, BpfMap>>;
export type Programs = ReadonlyMap<AttachPoint, BpfProgram>;
export type Links = ReadonlyMap<AttachPoint, BpfLink>;

const HOOKS = Object.values(SOCKET_HOOKS);
/** Maps that go on when others are made anew for more room: what they hold does not depend on those. */
const LASTING: readonly MapName[] = ['affinities', 'peers', 'udp_talks', 'config'];

/** The maps that an earlier process left, or null when some are missing or of another kind. */
export function openMaps(pinPath: string): { maps: Maps; capacity: Capacity } | null {
  const opened: Partial<Record<MapName, BpfMap>> = {};
  const definitions = Object.entries(mapDefinitions({ frontends: 1, endpoints: 1, backends: 1 }));
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
  const { frontends, endpoints, backends } = maps;
  return {
    maps,
    capacity: {
      frontends: frontends.maxEntries,
      endpoints: endpoints.maxEntries,
      backends: backends.maxEntries,
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
export function loadPrograms(maps: Maps): Programs {
  const object = readObject(Buffer.from(OBJECT, 'base64'));
  const descriptors = new Map(Object.entries(maps).map(([name, map]) => [name, map.fd]));
  const programs = new Map<AttachPoint, BpfProgram>();
  try {
    for (const program of object.programs) {
      const attach = SOCKET_HOOKS[program.section];
      if (!attach) continue;
      const instructions = relocate(program, descriptors);
      const { license } = object;
      programs.set(
        attach,
        loadProgram({ name: program.name, type: 'sockAddress', attach, instructions, license }),
      );
    }
  } catch (error) {
    closePrograms(programs);
    throw error;
  }
  return programs;
}

export function closePrograms(programs: Programs): void {
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
 * between. Takes away again what it attached if one cannot be.
 */
export function attachPrograms(programs: Programs, cgroup: string, pinPath: string): Links {
  const cgroupFd = openSync(cgroup, 'r');
  const cgroupId = statSync(cgroup, { bigint: true }).ino;
  const links = new Map<AttachPoint, BpfLink>();
  const fresh: AttachPoint[] = [];
  try {
    for (const [hook, program] of programs) {
      const path = linkPin(pinPath, hook);
      const pinned = openPin(path);
      if (pinned !== null) {
        const link = openLink(pinned);
        if (linkInfo(pinned).cgroupId === cgroupId) {
          links.set(hook, link);
          updateLink(pinned, program.fd);
          continue;
        }
        // Of a control group that is gone, or of another configuration.
        unpin(path);
        link.close();
      }
      const link = linkCgroup(program.fd, cgroupFd, hook);
      links.set(hook, link);
      fresh.push(hook);
      pin(link.fd, path);
    }
    return links;
  } catch (error) {
    for (const hook of fresh) unpin(linkPin(pinPath, hook));
    for (const link of links.values()) link.close();
    throw error;
  } finally {
    closeSync(cgroupFd);
  }
}

/** Which links are missing or lead elsewhere. */
export function brokenLinks(links: Links, cgroup: string, pinPath: string): AttachPoint[] {
  const cgroupId = statSync(cgroup, { bigint: true, throwIfNoEntry: false })?.ino;
  return HOOKS.filter((hook) => {
    const link = links.get(hook);
    const pinned = openPin(linkPin(pinPath, hook));
    if (pinned !== null) closeSync(pinned);
    return !link || pinned === null || linkInfo(link.fd).cgroupId !== cgroupId;
  });
}
