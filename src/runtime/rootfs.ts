import { mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { libc, systemError } from '../kernel/libc.ts';
import { removeTree } from './files/file-tree.ts';
import { KubeletError } from './kubelet-error.ts';
import type { OciMount } from './oci-config.ts';
import type { BuiltinImage } from './options.ts';
import { releasePinned } from './pinned-files.ts';

/** An image as containers use it. */
export interface Image {
  readonly name: string;
  /** Its exact identity, as in a container's status: "NAME@DIGEST"; empty for built-in images. */
  readonly id: string;
  /** Read-only layers, uppermost first. */
  readonly layers: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
  readonly workingDir: string;
  /** "USER", "UID", "USER:GROUP", …, as in the image. */
  readonly user: string;
  /** The stop signal. */
  readonly stopSignal: string;
  readonly mounts: readonly OciMount[];
}

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Returns a built-in image: `host`, the readable part of this machine's own root (host-root.ts), or one of the options;
 * any tag. Null for other names.
 */
export function builtinImage(
  name: string,
  builtins: Readonly<Record<string, BuiltinImage>>,
  hostLayers: () => readonly string[],
): Image | null {
  const bare = name.replace(/:[^/:]*$/, '');
  const builtin = bare === 'host' ? { mounts: [] } : builtins[bare];
  if (!builtin) return null;
  return {
    name,
    id: '',
    layers: hostLayers(),
    env: { PATH, ...builtin.env },
    entrypoint: [],
    command: ['/bin/sh'],
    workingDir: '/',
    user: '0',
    stopSignal: 'SIGTERM',
    // Containers get empty folders instead of the machine's /run and /tmp.
    mounts: [
      {
        destination: '/run',
        type: 'tmpfs',
        source: 'tmpfs',
        options: ['nosuid', 'nodev', 'mode=755', 'size=65536k'],
      },
      { destination: '/tmp', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'mode=1777'] },
      ...builtin.mounts.map(({ source, destination, readonly }) => ({
        destination,
        type: 'bind',
        source,
        options: ['rbind', readonly ? 'ro' : 'rw', 'nosuid', 'nodev'],
      })),
    ],
  };
}

// linux/mount.h
const MNT_DETACH = 2;

/** Mounts an image's layers below a private writable one; returns the root file system's path. */
export function mountRootfs(image: Image, folder: string): string {
  const paths = { upper: join(folder, 'upper'), work: join(folder, 'work'), rootfs: join(folder, 'rootfs') };
  for (const path of Object.values(paths)) mkdirSync(path, { recursive: true, mode: 0o755 });
  const escaped = (path: string) => path.replace(/[\\:,]/g, '\\$&');
  const data = `lowerdir=${image.layers.map(escaped).join(':')},upperdir=${escaped(paths.upper)},workdir=${escaped(paths.work)}`;
  if (data.length > 4000) {
    throw new KubeletError('RunContainerError', `image ${image.name} has too many layers to mount`, {
      op: 'mount image',
    });
  }
  if (libc().mount('overlay', paths.rootfs, 'overlay', 0, data) !== 0) {
    throw systemError(
      'mount overlay',
      paths.rootfs,
      'needs overlayfs in the kernel, and a state folder on a file system that supports upper layers',
    );
  }
  return paths.rootfs;
}

/** Unmounts and deletes the root file system of `mountRootfs`, even if mounted repeatedly. Idempotent. */
export async function removeRootfs(folder: string): Promise<void> {
  const rootfs = join(folder, 'rootfs');
  if (statSync(rootfs, { throwIfNoEntry: false })) {
    while (libc().umount2(rootfs, MNT_DETACH) === 0);
    const error = systemError('unmount', rootfs);
    // EINVAL: no longer mounted.
    if (error.code !== 'EINVAL' && error.code !== 'ENOENT') throw error;
  }
  // A mounted volume would be emptied.
  releasePinned(folder);
  await removeTree(folder);
}
