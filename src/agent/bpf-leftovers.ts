import { closeSync, openSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { detachCgroupLinks } from '../kernel/bpf/link.ts';
import { openPinnedMap } from '../kernel/bpf/map.ts';
import {
  type AttachPoint,
  detachProgram,
  openProgram,
  programInfo,
  programsAt,
} from '../kernel/bpf/program.ts';
import { readOptionalFolder, removeOptionalFile } from '../kernel/optional-file.ts';
import { hasCode } from '../lib/errors.ts';

/** Where the BPF objects of a node are. */
export interface BpfPlace {
  /** Directory of the node's control group; null: there is none. */
  readonly group: string | null;
  /** Folder of the node's BPF file system. */
  readonly pins: string;
}

/** How a proxy that translates Services by BPF names its objects. */
export interface BpfProxy {
  /** Programs at the node's control group; the kernel keeps 15 characters of a name. */
  readonly programs: RegExp;
  /** Folder of the pins of their links, below the BPF file system; null: they are not pinned. */
  readonly links: string | null;
  /** Pinned maps, below tc/globals, in which its programs look up Services' addresses. */
  readonly maps: RegExp;
}

interface AttachedProgram {
  readonly attach: AttachPoint;
  readonly id: number;
  readonly name: string;
}

/** State that such a proxy has left and that translates Services. */
export interface BpfLeftovers {
  readonly programs: readonly AttachedProgram[];
  /** Paths of maps with entries. */
  readonly maps: readonly string[];
}

/** Hooks of a control group at which addresses are translated, or ports of Services are reserved. */
const HOOKS: readonly AttachPoint[] = [
  ...(['connect4', 'connect6', 'sendmsg4', 'sendmsg6', 'recvmsg4', 'recvmsg6'] as const),
  ...(['getpeername4', 'getpeername6', 'bind4', 'bind6', 'postBind4', 'postBind6', 'sockRelease'] as const),
];
const GLOBALS = 'tc/globals';

/** Finds the programs and the maps with entries of a proxy. */
export function findBpf(proxy: BpfProxy, place: BpfPlace): BpfLeftovers {
  return { programs: findPrograms(proxy, place), maps: findMaps(proxy, place) };
}

/**
 * Detaches the programs and empties the maps: programs of the pod network that stay attached to devices find no Service
 * there, and let packets pass untranslated.
 */
export function removeBpf(
  proxy: BpfProxy,
  { programs, maps }: BpfLeftovers,
  { group, pins }: BpfPlace,
): void {
  if (group !== null && programs.length > 0) {
    const fd = openSync(group, 'r');
    try {
      for (const one of programs) detach(one, fd, statSync(group, { bigint: true }).ino);
    } finally {
      closeSync(fd);
    }
  }
  // Links that are detached stay pinned.
  if (proxy.links !== null) {
    const folder = join(pins, proxy.links);
    for (const name of readOptionalFolder(folder))
      if (proxy.programs.test(name)) removeOptionalFile(join(folder, name));
  }
  for (const path of maps) emptyMap(path);
}

function findPrograms({ programs }: BpfProxy, { group }: BpfPlace): AttachedProgram[] {
  if (group === null) return [];
  let fd: number;
  try {
    fd = openSync(group, 'r');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
  try {
    return HOOKS.flatMap((attach) =>
      idsAt(fd, attach).flatMap((id) => {
        const name = nameOf(id);
        return name !== null && programs.test(name) ? [{ attach, id, name }] : [];
      }),
    );
  } finally {
    closeSync(fd);
  }
}

function idsAt(group: number, attach: AttachPoint): number[] {
  try {
    return programsAt(group, attach, false);
  } catch (error) {
    // The kernel lacks this hook.
    if (hasCode(error, 'EINVAL')) return [];
    throw error;
  }
}

function nameOf(id: number): string | null {
  const fd = openProgram(id);
  if (fd === null) return null;
  try {
    return programInfo(fd).name;
  } finally {
    closeSync(fd);
  }
}

function detach({ id, attach }: AttachedProgram, group: number, groupId: bigint): void {
  if (detachCgroupLinks(id, groupId) > 0) return;
  const fd = openProgram(id);
  if (fd === null) return;
  try {
    detachProgram(fd, group, attach);
  } catch (error) {
    // Its owner detached it meanwhile.
    if (!hasCode(error, 'ENOENT')) throw error;
  } finally {
    closeSync(fd);
  }
}

function findMaps({ maps }: BpfProxy, { pins }: BpfPlace): string[] {
  const folder = join(pins, GLOBALS);
  return readOptionalFolder(folder)
    .filter((name) => maps.test(name))
    .map((name) => join(folder, name))
    .filter((path) => {
      const map = openPinnedMap(path);
      try {
        return map !== null && map.keys(1).length > 0;
      } finally {
        map?.close();
      }
    });
}

function emptyMap(path: string): void {
  const map = openPinnedMap(path);
  if (map === null) return;
  try {
    for (const key of map.keys()) map.delete(key);
  } finally {
    map.close();
  }
}
