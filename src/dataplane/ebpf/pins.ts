import { closeSync, existsSync, mkdirSync, rmdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { detachLink, linkInfo } from '../../kernel/bpf/link.ts';
import { makePinDirectory, openPin, unmountPinDirectory, unpin } from '../../kernel/bpf/pin.ts';
import { readOptionalFolder } from '../../kernel/optional-file.ts';
import { hasCode } from '../../lib/errors.ts';

const STANDARD_MOUNT = '/sys/fs/bpf';
/** Directory of the pinned links and maps if the whole machine is one node. */
export const DEFAULT_PIN_PATH = join(STANDARD_MOUNT, 'fairlead');
/**
 * Part of the path of all pins. Changes with the types of the maps, so that programs and maps of different releases are
 * never mixed.
 */
const VERSION = 'v3';
/** Folders of this and of other releases. */
const VERSIONS = /^v[0-9]+$/;

/**
 * Returns the directory of the pins of a node whose pods are below a control group
 * ("/fairlead-default/node-1"). Names in a BPF file system must not contain dots.
 */
export function pinPathOf(cgroupParent: string): string {
  return join(STANDARD_MOUNT, cgroupParent.replaceAll('.', '_'));
}

/** Returns the folder of a node's pins. */
export const pinDirectory = (pinPath: string): string => join(pinPath, VERSION);
export const mapPin = (pinPath: string, name: string): string => join(pinDirectory(pinPath), `map-${name}`);
export const linkPin = (pinPath: string, name: string): string => join(pinDirectory(pinPath), `link-${name}`);

/** Returns the names of the links that are pinned for a node. */
export function pinnedLinks(pinPath: string): string[] {
  return readOptionalFolder(pinDirectory(pinPath)).flatMap((name) =>
    name.startsWith('link-') ? [name.slice('link-'.length)] : [],
  );
}

/** Returns the ids of the programs of a node's pinned links with this name, of every release. */
export function pinnedPrograms(pinPath: string, name: string): number[] {
  const versions = readOptionalFolder(pinPath).filter((version) => VERSIONS.test(version));
  return versions.flatMap((version) => {
    const link = openPin(join(pinPath, version, `link-${name}`));
    if (link === null) return [];
    try {
      return [linkInfo(link).programId];
    } finally {
      closeSync(link);
    }
  });
}

/** Creates the folder of the pins, mounting a BPF file system if needed, and ends draining. */
export function makePins(pinPath: string): void {
  makePinDirectory(pinPath);
  removeDirectory(drainingMark(pinPath));
  mkdirSync(pinDirectory(pinPath), { recursive: true, mode: 0o700 });
}

const drainingMark = (pinPath: string): string => join(pinPath, 'draining');

/** Marks the pins as used only by rerouted connections, because another mode handles Services now. */
export function markDraining(pinPath: string): void {
  mkdirSync(drainingMark(pinPath), { recursive: true, mode: 0o700 });
}

export function isDraining(pinPath: string): boolean {
  return existsSync(drainingMark(pinPath));
}

/**
 * Detaches the programs pinned at `pinPath` and removes the pins of every release; programs and maps are
 * freed when no process holds them open. Needs only the path, so it also works for nodes that no longer
 * run. Returns true if there were pins.
 */
export function removePins(pinPath: string): boolean {
  const found = removeVersions(pinPath, () => true);
  removeDirectory(drainingMark(pinPath));
  unmountPinDirectory(pinPath);
  removeDirectory(pinPath);
  // The folder shared by the nodes of a cluster is removed with the last of them.
  const parent = dirname(pinPath);
  if (parent !== STANDARD_MOUNT && parent.startsWith(`${STANDARD_MOUNT}/`)) removeDirectory(parent);
  unmountPinDirectory(pinPath);
  return found;
}

/** Detaches and removes the pins of other releases. */
export const removeOtherVersions = (pinPath: string): boolean =>
  removeVersions(pinPath, (version) => version !== VERSION);

function removeVersions(pinPath: string, isWanted: (version: string) => boolean): boolean {
  let found = false;
  for (const version of readOptionalFolder(pinPath).filter((name) => VERSIONS.test(name) && isWanted(name))) {
    const folder = join(pinPath, version);
    for (const name of readOptionalFolder(folder)) {
      removePin(join(folder, name));
      found = true;
    }
    removeDirectory(folder);
  }
  return found;
}

/** Detaches and unpins the links of a node whose name is wanted. */
export function removeLinks(pinPath: string, wanted: (name: string) => boolean): void {
  for (const name of pinnedLinks(pinPath)) if (wanted(name)) removePin(linkPin(pinPath, name));
}

function removePin(path: string): void {
  const fd = basename(path).startsWith('link-') ? openPin(path) : null;
  unpin(path);
  if (fd === null) return;
  try {
    if (linkInfo(fd).cgroupId !== 0n) detachLink(fd);
  } finally {
    closeSync(fd);
  }
}

/** Calls `removePins` for every node below a folder: all nodes of a local cluster. */
export function removeAllPins(folder: string): void {
  for (const name of readOptionalFolder(folder)) removePins(join(folder, basename(name)));
}

function removeDirectory(path: string): void {
  try {
    rmdirSync(path);
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY', 'EBUSY')) throw error;
  }
}
