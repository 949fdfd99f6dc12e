import { constants, type Dir } from 'node:fs';
import {
  chmod,
  chown,
  lstat,
  mkdir,
  open,
  opendir,
  readlink,
  rename,
  rm,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { hasCode } from '../lib/errors.ts';
import { inBatches } from '../lib/in-batches.ts';
import { removeTree } from './files/file-tree.ts';
import { KubeletError } from './kubelet-error.ts';

/** A file of a volume whose contents are data of API objects. */
export interface VolumeFile {
  /** Relative to the volume. */
  readonly path: string;
  readonly content: Uint8Array;
  readonly mode: number;
  /** The user that owns it. Default: root. */
  readonly user?: number;
}

/** The link to the folder with the current files. */
const DATA = '..data';
/** Files that are written at the same time; the event loop serves others meanwhile. */
const PARALLEL = 16;

/**
 * Replaces a volume's files at once, as upstream's AtomicWriter (pkg/volume/util/atomic_writer.go): the files are links into
 * `..data`, a link to a timestamped folder, which is replaced by a rename. Files with the wanted contents are left alone, since
 * programs that watch them would read them again. `group`: the pod's fsGroup. Throws KubeletError for a path outside the volume.
 */
export async function writeVolumeFiles(
  folder: string,
  files: readonly VolumeFile[],
  group: number | undefined,
): Promise<void> {
  const wanted = new Map(files.map((file) => [pathInside(file.path), file]));
  const data = join(folder, DATA);
  const current = await linkTarget(data);
  if (current !== null && (await hasFiles(join(folder, current), wanted))) return;
  const stamp = `..${process.hrtime.bigint()}`;
  const fresh = join(folder, stamp);
  await mkdir(fresh, { mode: 0o755 });
  const folders = new Set([...wanted.keys()].map((path) => dirname(path)));
  for (const one of folders) if (one !== '.') await mkdir(join(fresh, one), { recursive: true });
  await inBatches(wanted, PARALLEL, async ([path, { content, mode, user = 0 }]) => {
    const file = join(fresh, path);
    await writeFile(file, content, { flag: 'wx' });
    // As upstream's SetVolumeOwnership: the group can read its files.
    await chmod(file, group === undefined ? mode : mode | 0o440);
    if (group !== undefined || user !== 0) await chown(file, user, group ?? 0);
  });
  const next = `${data}.new`;
  // Left by an agent that was killed.
  await rm(next, { force: true });
  await symlink(stamp, next);
  await rename(next, data);
  const tops = new Set([...wanted.keys()].map((path) => path.split('/')[0] ?? path));
  await inBatches(tops, PARALLEL, async (top) => {
    try {
      await symlink(join(DATA, top), join(folder, top));
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error;
    }
  });
  await removeOutdated(folder, stamp, tops);
}

async function linkTarget(path: string): Promise<string | null> {
  try {
    return await readlink(path);
  } catch (error) {
    // EINVAL: not a link.
    if (hasCode(error, 'ENOENT', 'EINVAL')) return null;
    throw error;
  }
}

/** Removes the links to files that are no longer in the volume, and the folders of earlier contents. */
async function removeOutdated(folder: string, stamp: string, tops: ReadonlySet<string>): Promise<void> {
  const outdated: string[] = [];
  for await (const entry of await opendir(folder)) {
    const { name } = entry;
    const path = join(folder, name);
    if (entry.isDirectory() && /^\.\.\d+$/.test(name) && name !== stamp) outdated.push(path);
    else if (entry.isSymbolicLink() && !tops.has(name) && (await linkTarget(path)) === join(DATA, name))
      await unlink(path);
  }
  for (const path of outdated) await removeTree(path);
}

/** Reports whether a folder has exactly these files, with these contents. */
async function hasFiles(folder: string, wanted: ReadonlyMap<string, VolumeFile>): Promise<boolean> {
  let isSame = true;
  await inBatches(wanted, PARALLEL, async ([path, { content }]) => {
    if (isSame && !(await hasContent(join(folder, path), content))) isSame = false;
  });
  return isSame && !(await hasOthers(folder, wanted));
}

/** Reports whether a folder has a file that is not wanted, or is missing. */
async function hasOthers(
  folder: string,
  wanted: ReadonlyMap<string, VolumeFile>,
  inside = '',
): Promise<boolean> {
  let entries: Dir;
  try {
    entries = await opendir(join(folder, inside));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return true;
    throw error;
  }
  for await (const entry of entries) {
    const path = join(inside, entry.name);
    const isWanted = entry.isDirectory() ? !(await hasOthers(folder, wanted, path)) : wanted.has(path);
    if (!isWanted) return true;
  }
  return false;
}

/** Reports whether a path is a regular file of this content. */
async function hasContent(path: string, content: Uint8Array): Promise<boolean> {
  try {
    if ((await lstat(path)).size !== content.length) return false;
    const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      if (!(await handle.stat()).isFile()) return false;
      const { bytesRead, buffer } = await handle.read(
        Buffer.alloc(content.length + 1),
        0,
        content.length + 1,
        0,
      );
      return buffer.subarray(0, bytesRead).equals(content);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR', 'ELOOP')) return false;
    throw error;
  }
}

function pathInside(path: string): string {
  const inside = normalize(path);
  if (!inside.startsWith('..') && !inside.startsWith('/')) return inside;
  throw new KubeletError('FailedMount', `volume item path ${JSON.stringify(path)} is outside the volume`, {
    op: 'mount volume',
  });
}
