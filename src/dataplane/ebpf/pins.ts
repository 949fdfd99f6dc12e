import { closeSync, existsSync, mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { detachLink, linkInfo } from '../../kernel/bpf/link.ts';
import { makePinDirectory, openPin, unmountPinDirectory, unpin } from '../../kernel/bpf/pin.ts';
import { hasCode } from '../../lib/errors.ts';

const STANDARD_MOUNT = '/sys/fs/bpf';
/** Where links and maps of a machine's only node are pinned. */
export const DEFAULT_PIN_PATH = join(STANDARD_MOUNT, 'fairlead');
/** Part of the path of all pins: programs and maps of another layout are never mixed with these. */
const LAYOUT = 'v1';
/** Folders of this and of other releases' layouts. */
const LAYOUTS = /^v[0-9]+$/;

/**
 * Where a node is pinned whose pods are below a control group ("/fairlead-default/node-1"). Names in a BPF file system
 * have no dots.
 */
export function pinPathOf(cgroupParent: string): string {
  return join(STANDARD_MOUNT, cgroupParent.replaceAll('.', '_'));
}

/** Where everything of one node is pinned in this layout. */
export const pinDirectory = (pinPath: string): string => join(pinPath, LAYOUT);
export const mapPin = (pinPath: string, name: string): string => join(pinDirectory(pinPath), `map-${name}`);
export const linkPin = (pinPath: string, name: string): string => join(pinDirectory(pinPath), `link-${name}`);

/** Names of the links that are pinned for a node. */
export function pinnedLinks(pinPath: string): string[] {
  return entriesOf(pinDirectory(pinPath)).flatMap((name) =>
    name.startsWith('link-') ? [name.slice('link-'.length)] : [],
  );
}

/** Makes the place of the pins, mounting a BPF file system where there is none. */
export function makePins(pinPath: string): void {
  makePinDirectory(pinPath);
  removeDirectory(leavingMark(pinPath));
  mkdirSync(pinDirectory(pinPath), { recursive: true, mode: 0o700 });
}

const leavingMark = (pinPath: string): string => join(pinPath, 'leaving');

/** Says at the pins that another mode is at work, until somebody makes them anew. */
export function markLeaving(pinPath: string): void {
  mkdirSync(leavingMark(pinPath), { recursive: true, mode: 0o700 });
}

export function isLeaving(pinPath: string): boolean {
  return existsSync(leavingMark(pinPath));
}

/**
 * Detaches what is pinned at `pinPath` and takes all pins away, of every layout; with the last process that holds them
 * open the programs and maps are gone. Needs nothing but the path: for nodes that do not run any more. True when there
 * was anything.
 */
export function removePins(pinPath: string): boolean {
  let found = false;
  for (const layout of entriesOf(pinPath).filter((name) => LAYOUTS.test(name))) {
    const folder = join(pinPath, layout);
    for (const name of entriesOf(folder)) {
      removePin(join(folder, name));
      found = true;
    }
    removeDirectory(folder);
  }
  removeDirectory(leavingMark(pinPath));
  unmountPinDirectory(pinPath);
  removeDirectory(pinPath);
  // The folder that the nodes of one cluster share goes with the last of them.
  const parent = dirname(pinPath);
  if (parent !== STANDARD_MOUNT && parent.startsWith(`${STANDARD_MOUNT}/`)) removeDirectory(parent);
  unmountPinDirectory(pinPath);
  return found;
}

/** Detaches those of a node's links that are named so, and takes their pins away. */
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

/** `removePins` for every node below a folder: all nodes of a local cluster. */
export function removeAllPins(folder: string): void {
  for (const name of entriesOf(folder)) removePins(join(folder, basename(name)));
}

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  }
}

function removeDirectory(path: string): void {
  try {
    rmdirSync(path);
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY', 'EBUSY')) throw error;
  }
}
