import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, normalize } from 'node:path';
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

/**
 * Replaces a volume's files at once, as upstream's AtomicWriter (pkg/volume/util/atomic_writer.go): the files are links into
 * `..data`, a link to a timestamped folder, which is replaced by a rename. Files with the wanted contents are left alone, since
 * programs that watch them would read them again. `group`: the pod's fsGroup. Throws KubeletError for a path outside the volume.
 */
export function writeVolumeFiles(
  folder: string,
  files: readonly VolumeFile[],
  group: number | undefined,
): void {
  const wanted = new Map(files.map((file) => [pathInside(file.path), file]));
  const data = join(folder, DATA);
  const current = lstatSync(data, { throwIfNoEntry: false })?.isSymbolicLink() ? readlinkSync(data) : null;
  if (current !== null && hasFiles(join(folder, current), wanted)) return;
  const stamp = `..${process.hrtime.bigint()}`;
  const fresh = join(folder, stamp);
  mkdirSync(fresh, { mode: 0o755 });
  for (const [path, { content, mode, user = 0 }] of wanted) {
    const file = join(fresh, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
    // As upstream's SetVolumeOwnership: the group can read its files.
    chmodSync(file, group === undefined ? mode : mode | 0o440);
    if (group !== undefined || user !== 0) chownSync(file, user, group ?? 0);
  }
  const next = `${data}.new`;
  // Left by an agent that was killed.
  rmSync(next, { force: true });
  symlinkSync(stamp, next);
  renameSync(next, data);
  const tops = new Set([...wanted.keys()].map((path) => path.split('/')[0] ?? path));
  for (const top of tops) {
    const link = join(folder, top);
    if (!lstatSync(link, { throwIfNoEntry: false })) symlinkSync(join(DATA, top), link);
  }
  removeOutdated(folder, stamp, tops);
}

/** Removes the links to files that are no longer in the volume, and the folders of earlier contents. */
function removeOutdated(folder: string, stamp: string, tops: ReadonlySet<string>): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const { name } = entry;
    const path = join(folder, name);
    if (entry.isDirectory() && /^\.\.\d+$/.test(name) && name !== stamp)
      rmSync(path, { recursive: true, force: true });
    else if (entry.isSymbolicLink() && !tops.has(name) && readlinkSync(path) === join(DATA, name))
      unlinkSync(path);
  }
}

/** Reports whether a folder has exactly these files, with these contents. */
function hasFiles(folder: string, wanted: ReadonlyMap<string, VolumeFile>): boolean {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return false;
  const present = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(
    (entry) => !entry.isDirectory(),
  );
  return (
    present.length === wanted.size &&
    present.every(({ parentPath, name }) => {
      const path = join(parentPath, name);
      const file = wanted.get(path.slice(folder.length + 1));
      return file !== undefined && readFileSync(path).equals(file.content);
    })
  );
}

function pathInside(path: string): string {
  const inside = normalize(path);
  if (!inside.startsWith('..') && !inside.startsWith('/')) return inside;
  throw new KubeletError('FailedMount', `volume item path ${JSON.stringify(path)} is outside the volume`, {
    op: 'mount volume',
  });
}
