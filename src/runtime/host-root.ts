import {
  chmodSync,
  chownSync,
  copyFileSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  type Stats,
  symlinkSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { inUserNamespace } from '../kernel/id-maps.ts';
import { libc, systemError } from '../kernel/libc.ts';
import { MNT_DETACH } from '../kernel/mount-flags.ts';
import { mountsBelow } from '../kernel/mount-points.ts';

// linux/stat.h
const S_IFCHR = 0o020000;
/** The machine's folders that pods of built-in images see: its programs and its configuration. */
const SHARED = new Set(['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32', 'usr', 'etc']);
/** Files of /etc that are copied have at most this size. */
const MAX_COPIED_BYTES = 16 << 20;
/** Folders that programs expect in /var; all are empty. */
const VAR = ['cache', 'lib', 'local', 'log', 'mail', 'opt', 'spool', 'tmp'];

/** The files of the built-in images. */
export interface HostRoot {
  /** Layers of the whole root, uppermost first. */
  readonly layers: readonly string[];
  readonly trees: readonly LayerTree[];
}

/** A folder of a root file system that has layers of its own. */
export interface LayerTree {
  /** Relative to the root. */
  readonly path: string;
  /** Uppermost first. */
  readonly layers: readonly string[];
}

/**
 * Creates the layers of the built-in images, uppermost first: the machine's root, restricted to programs, libraries and
 * the world-readable files of /etc; keys, password hashes, homes, and the state of other programs and clusters are
 * hidden.
 *
 * The layers above "/" are in a tmpfs at `folder`, as overlayfs refuses lower layers that contain each other: one of
 * whiteouts (overlayfs: character devices 0:0), and above it one of empty folders in their places.
 *
 * In a user namespace, overlayfs refuses "/", below which other mounts are (has_locked_children of fs/namespace.c): then the
 * folders that pods see are trees with layers of their own. The same holds for a folder with mounts below it, such as the
 * resolv.conf of a container: of /etc a copy is shown then, of others the folders in it.
 */
export function makeHostRoot(folder: string, root = '/', isPartial = inUserNamespace()): HostRoot {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  // Left by an earlier agent: running containers use it until they end.
  while (libc().umount2(folder, MNT_DETACH) === 0);
  if (libc().mount('tmpfs', folder, 'tmpfs', 0, 'mode=755') !== 0) throw systemError('mount tmpfs', folder);
  const [folders, whiteouts] = [join(folder, 'folders'), join(folder, 'whiteouts')];
  for (const layer of [folders, whiteouts]) mkdirSync(layer, { mode: 0o755 });
  const device = join(folder, 'whiteout');
  if (libc().mknod(device, S_IFCHR | 0o644, 0) !== 0) throw systemError('create whiteout', device);
  const hide = (path: string) => {
    copyFolders(root, whiteouts, dirname(path));
    linkSync(device, join(whiteouts, path));
  };
  const trees: LayerTree[] = [];
  for (const name of readdirSync(root)) {
    if (SHARED.has(name)) {
      if (isPartial)
        trees.push(...showEntry(root, folders, name, name === 'etc' ? [join(whiteouts, name)] : []));
      continue;
    }
    if (!isPartial) hide(name);
    const found = lstatSync(join(root, name));
    if (found.isDirectory()) makeLike(join(folders, name), found);
  }
  for (const name of VAR) mkdirSync(join(folders, 'var', name), { recursive: true, mode: 0o755 });
  chmodSync(join(folders, 'var', 'tmp'), 0o1777);
  symlinkSync('/run', join(folders, 'var', 'run'));
  if (isPartial) mkdirSync(join(whiteouts, 'etc'), { mode: 0o755 });
  for (const path of unreadable(root, 'etc')) hide(path);
  return isPartial ? { layers: [folders], trees } : { layers: [folders, whiteouts, root], trees };
}

/**
 * Shows an entry of the root in `layer`: copies a link or a file, and returns the trees of a folder, which the layer has empty.
 * `above`: the layers above that of the machine.
 */
function showEntry(root: string, layer: string, path: string, above: readonly string[]): LayerTree[] {
  const [from, to] = [join(root, path), join(layer, path)];
  const found = lstatSync(from);
  if (!found.isDirectory()) {
    copyEntry(from, to, found);
    return [];
  }
  makeLike(to, found);
  if (mountsBelow(from).length === 0) return [{ path, layers: [...above, from] }];
  if (path !== 'etc')
    return readdirSync(from).flatMap((name) => showEntry(root, layer, join(path, name), []));
  copyReadable(from, to);
  return [];
}

function copyReadable(from: string, to: string): void {
  for (const name of readdirSync(from)) {
    const [source, target] = [join(from, name), join(to, name)];
    const found = lstatSync(source);
    if (found.isDirectory() && isReadableByAll(found)) {
      makeLike(target, found);
      copyReadable(source, target);
    } else if (!found.isDirectory()) copyEntry(source, target, found);
  }
}

/** Copies a link, or a world-readable file of a moderate size. */
function copyEntry(from: string, to: string, found: Stats): void {
  if (found.isSymbolicLink()) symlinkSync(readlinkSync(from), to);
  else if (found.isFile() && found.size <= MAX_COPIED_BYTES && isReadableByAll(found)) {
    copyFileSync(from, to);
    chmodSync(to, found.mode & 0o777);
  }
}

function isReadableByAll(found: Stats): boolean {
  const needed = found.isDirectory() ? 0o005 : 0o004;
  return (found.mode & needed) === needed;
}

/** Yields paths below a folder that are not world-readable; for an inaccessible folder, only its own path. */
function* unreadable(root: string, path: string): Generator<string> {
  for (const entry of readdirSync(join(root, path), { withFileTypes: true })) {
    const child = join(path, entry.name);
    if (entry.isSymbolicLink()) continue;
    if (!isReadableByAll(lstatSync(join(root, child)))) yield child;
    else if (entry.isDirectory()) yield* unreadable(root, child);
  }
}

/** Creates a path's folders in a layer, with the owners and modes of the layers below. */
function copyFolders(root: string, layer: string, path: string): void {
  if (path === '.' || lstatSync(join(layer, path), { throwIfNoEntry: false })) return;
  copyFolders(root, layer, dirname(path));
  makeLike(join(layer, path), lstatSync(join(root, path)));
}

function makeLike(path: string, { mode, uid, gid }: Stats): void {
  mkdirSync(path);
  // In a user namespace, most owners of the machine's files are not known: its root owns the folders.
  if (!inUserNamespace()) chownSync(path, uid, gid);
  chmodSync(path, mode & 0o7777);
}
