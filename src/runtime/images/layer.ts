import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { inUserNamespace, isMapped, mappedIds } from '../../kernel/id-maps.ts';
import { libc, systemError } from '../../kernel/libc.ts';
import { FairleadError } from '../../lib/errors.ts';
import { removeWholeTree } from '../files/whole-tree.ts';
import { createLayerBudget, LAYER_LIMITS, type LayerBudget } from './layer-limits.ts';
import { readTar, type TarEntry } from './tar-reader.ts';

const WHITEOUT = '.wh.';
const OPAQUE = '.wh..wh..opq';
/** Entries that a builder's file system (aufs) uses internally. */
const PRIVATE = '.wh..wh.';
const MAX_LINKS = 40;

/**
 * Applies an image layer (OCI image-spec, layer.md) to a root file system: adds and replaces files; whiteouts
 * remove files of earlier layers, of which the first (`isFirst`) has none. Never touches anything outside `root`, with any
 * links and paths in the layer. Blocks the thread. Throws FairleadError "bad-archive", "image-too-large".
 */
export async function applyLayer(
  root: string,
  source: AsyncIterable<Uint8Array>,
  budget: LayerBudget = createLayerBudget(LAYER_LIMITS),
  isFirst = false,
): Promise<void> {
  const made = new Set<string>();
  const owners = createOwners();
  for await (const entry of readTar(source)) {
    budget.entry(entry.path, entry.linkPath);
    const parts = partsOf(entry.path);
    const name = parts.pop();
    if (name === undefined) {
      if (entry.type === 'directory') own(root, entry, owners);
      continue;
    }
    const folder = resolveFolder(root, parts, budget);
    if (name === OPAQUE) {
      for (const child of isFirst ? [] : readdirSync(folder)) {
        if (!made.has(join(folder, child))) remove(join(folder, child));
      }
      continue;
    }
    if (name.startsWith(PRIVATE)) continue;
    if (name.startsWith(WHITEOUT)) {
      const hidden = name.slice(WHITEOUT.length);
      // ".wh..." would hide "..", the folder above.
      if (hidden === '' || hidden === '.' || hidden === '..') {
        throw badLayer(`the layer's whiteout ${JSON.stringify(entry.path)} names no file`);
      }
      if (!isFirst && !made.has(join(folder, hidden))) remove(join(folder, hidden));
      continue;
    }
    const path = join(folder, name);
    const present = lstatSync(path, { throwIfNoEntry: false });
    if (present && !(present.isDirectory() && entry.type === 'directory')) remove(path);
    await write(root, path, entry, present?.isDirectory() === true, owners);
    // A folder belongs to this layer if any of its contents does.
    if (isFirst) continue;
    for (let at = path; at.length > root.length && !made.has(at); at = join(at, '..')) made.add(at);
  }
}

async function write(
  root: string,
  path: string,
  entry: TarEntry,
  isFolder: boolean,
  owners: Owners,
): Promise<void> {
  switch (entry.type) {
    case 'file': {
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
      const fd = openSync(path, flags, 0o600);
      try {
        for await (const chunk of entry.body) {
          for (let at = 0; at < chunk.length; ) at += writeSync(fd, chunk, at);
        }
        if (owners.has(entry)) fchownSync(fd, entry.uid, entry.gid);
        // After the owner: a change of owner clears set-user-ID bits.
        fchmodSync(fd, entry.mode);
      } finally {
        closeSync(fd);
      }
      lutimesSync(path, entry.mtime, entry.mtime);
      return;
    }
    case 'directory':
      if (!isFolder) mkdirSync(path);
      own(path, entry, owners);
      return;
    case 'symlink':
      symlinkSync(entry.linkPath, path);
      if (owners.has(entry)) lchownSync(path, entry.uid, entry.gid);
      return;
    case 'link': {
      const parts = partsOf(entry.linkPath);
      const name = parts.pop();
      if (name === undefined)
        throw badLayer(`the layer's hard link ${JSON.stringify(entry.path)} names no file`);
      linkSync(join(resolveFolder(root, parts, null), name), path);
      return;
    }
    case 'character':
    case 'block':
    case 'fifo':
      // Containers get devices of their own in /dev; a user namespace has no others.
      if (entry.type !== 'fifo' && owners.arePartial) return;
      if (libc().mknod(path, NODE_TYPES[entry.type] | 0o600, encodeDevice(entry.device)) !== 0)
        throw systemError('create device', entry.path);
      own(path, entry, owners);
  }
}

// linux/stat.h
const NODE_TYPES = { character: 0o020000, block: 0o060000, fifo: 0o010000 } as const;

/** Returns a device's number for mknod(2) (linux/kdev_t.h, new_encode_dev). */
function encodeDevice({ major, minor }: TarEntry['device']): number {
  return ((minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12)) >>> 0;
}

function own(path: string, entry: TarEntry, owners: Owners): void {
  if (owners.has(entry)) lchownSync(path, entry.uid, entry.gid);
  chmodSync(path, entry.mode);
}

/** The owners that files can have: all for root, the mapped ones for the root of a user namespace, none for others. */
interface Owners {
  has(owner: Pick<TarEntry, 'uid' | 'gid'>): boolean;
  readonly arePartial: boolean;
}

function createOwners(): Owners {
  const isRoot = process.getuid?.() === 0;
  const [users, groups] = [mappedIds('uid'), mappedIds('gid')];
  return {
    // Files of other owners belong to root, as which most images run.
    has: ({ uid, gid }) => isRoot && isMapped(users, uid) && isMapped(groups, gid),
    arePartial: inUserNamespace(),
  };
}

const remove = removeWholeTree;

function partsOf(path: string): string[] {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) {
    throw badLayer(`the layer's entry ${JSON.stringify(path)} is outside the image`);
  }
  return parts;
}

function badLayer(message: string): FairleadError {
  return new FairleadError(message, { op: 'unpack image', code: 'bad-archive' });
}

/**
 * Resolves the folder of a path inside `root`; symbolic links are followed as if `root` were "/". With a budget, missing folders are
 * made: a short path makes 256, and a link's target 2,000.
 */
function resolveFolder(root: string, parts: readonly string[], budget: LayerBudget | null): string {
  const todo = [...parts];
  let done: string[] = [];
  let links = 0;
  for (let part = todo.shift(); part !== undefined; part = todo.shift()) {
    if (part === '..') {
      done.pop();
      continue;
    }
    const path = join(root, ...done, part);
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) {
      if (++links > MAX_LINKS) {
        throw badLayer(`too many symbolic links in ${JSON.stringify(parts.join('/'))}`);
      }
      const target = readlinkSync(path);
      if (target.startsWith('/')) done = [];
      todo.unshift(...target.split('/').filter((piece) => piece !== '' && piece !== '.'));
      continue;
    }
    if (budget && !found?.isDirectory()) {
      budget.folder();
      budget.depth(done.length + 1);
      if (found) remove(path);
      mkdirSync(path, { mode: 0o755 });
    }
    done.push(part);
  }
  return join(root, ...done);
}
