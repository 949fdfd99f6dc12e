import { lstatSync, mkdirSync, statSync } from 'node:fs';
import { join, normalize } from 'node:path';
import { inUserNamespace } from '../kernel/id-maps.ts';
import { libc, systemError } from '../kernel/libc.ts';
import { MNT_DETACH, MS_NODEV } from '../kernel/mount-flags.ts';
import { removeTree } from './files/file-tree.ts';
import type { HostRoot, LayerTree } from './host-root.ts';
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
  /** Folders with layers of their own. */
  readonly trees?: readonly LayerTree[];
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
  hostRoot: () => HostRoot,
): Image | null {
  const bare = name.replace(/:[^/:]*$/, '');
  const builtin = bare === 'host' ? { mounts: [] } : builtins[bare];
  if (!builtin) return null;
  const { layers, trees } = hostRoot();
  return {
    name,
    id: '',
    layers,
    trees,
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

/**
 * Mounts an image's layers below a private writable one; returns the root file system's path. `mountPoints`: the paths in it at
 * which the container gets mounts. `hasDevices`: whether device nodes in it have an effect.
 */
export function mountRootfs(
  image: Image,
  folder: string,
  { mountPoints, hasDevices }: { readonly mountPoints: readonly string[]; readonly hasDevices: boolean },
): string {
  const rootfs = join(folder, 'rootfs');
  const flags = hasDevices ? 0 : MS_NODEV;
  mountLayers(image.name, image.layers, folder, rootfs, flags);
  for (const tree of image.trees ?? []) {
    const own = join(treesFolder(folder), tree.path);
    for (const point of mountPoints) makeParents(tree, point, join(own, 'upper'));
    mountLayers(image.name, tree.layers, own, join(rootfs, tree.path), flags);
  }
  return rootfs;
}

/**
 * Creates the folders above a mount point in the writable layer of a tree, so that the mount point can be created in them:
 * overlayfs cannot copy folders there whose owner the user namespace does not have.
 */
function makeParents({ path, layers }: LayerTree, mountPoint: string, upper: string): void {
  const point = normalize(mountPoint).split('/').filter(Boolean).join('/');
  if (!point.startsWith(`${path}/`)) return;
  const inside = point
    .slice(path.length + 1)
    .split('/')
    .slice(0, -1);
  const lowest = layers.at(-1) ?? '';
  for (let count = 1; count <= inside.length; count++) {
    const parent = join(...inside.slice(0, count));
    if (!lstatSync(join(lowest, parent), { throwIfNoEntry: false })?.isDirectory()) return;
    mkdirSync(join(upper, parent), { recursive: true, mode: 0o755 });
  }
}

/** Returns the folder of the files that a container wrote below `Image.trees`. */
export const treesFolder = (folder: string): string => join(folder, 'trees');

/** Mounts layers at `target` below a private writable one, which is in `folder`. */
function mountLayers(
  image: string,
  layers: readonly string[],
  folder: string,
  target: string,
  flags: number,
): void {
  const paths = { upper: join(folder, 'upper'), work: join(folder, 'work'), target };
  for (const path of Object.values(paths)) mkdirSync(path, { recursive: true, mode: 0o755 });
  const escaped = (path: string) => path.replace(/[\\:,]/g, '\\$&');
  const data = `lowerdir=${layers.map(escaped).join(':')},upperdir=${escaped(paths.upper)},workdir=${escaped(paths.work)}`;
  if (data.length > 4000) {
    throw new KubeletError('RunContainerError', `image ${image} has too many layers to mount`, {
      op: 'mount image',
    });
  }
  // In a user namespace, overlayfs keeps its marks in attributes that users may write (Linux 5.11).
  const forms = inUserNamespace() ? [`${data},userxattr`, data] : [data];
  if (!forms.some((form) => libc().mount('overlay', target, 'overlay', flags, form) === 0)) {
    throw systemError(
      'mount overlay',
      target,
      'needs overlayfs in the kernel, and a state folder on a file system that supports upper layers',
    );
  }
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
