import { mkdirSync, readdirSync, readFileSync, rmdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { probeOverlay, removeEndedProbes } from '../kernel/feature-probes.ts';
import { inUserNamespace } from '../kernel/id-maps.ts';
import { libc, systemError } from '../kernel/libc.ts';
import { MNT_DETACH } from '../kernel/mount-flags.ts';
import { mountsBelow } from '../kernel/mount-points.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { isRootless } from './rootless/rootless.ts';
import { stateRoot } from './state.ts';

/** The source of a tmpfs that `prepareStateFolder` has mounted, as /proc/mounts shows it. */
const SOURCE = 'fairlead-state';

/**
 * Creates the folder of all clusters' state, in which the containers' upper layers are. If its file system cannot hold
 * them, as the overlay that is the root of a container, mounts a tmpfs there. Returns a sentence for the user about
 * that, or null. Throws FairleadError on a kernel without overlayfs, and if the folder holds clusters that the tmpfs would
 * hide.
 */
export function prepareStateFolder(folder = stateRoot()): string | null {
  const isNew = mkdirSync(folder, { recursive: true, mode: 0o755 }) !== undefined;
  const cause = overlayFailure(folder);
  if (cause === null) return isMemory(folder) ? memoryText(folder) : null;
  try {
    if (!hasCode(cause, 'EINVAL', 'EROFS', 'EOPNOTSUPP')) throw overlayError(folder, cause);
    // Commands outside of a user's namespaces would not see the tmpfs.
    if (readdirSync(folder).length > 0 || isRootless())
      throw new FairleadError(
        `the state folder ${folder} cannot hold the file systems of containers (${messageOf(cause)})${isRootless() ? '' : ', and is not empty'}`,
        {
          op: 'prepare the state folder',
          code: 'missing-kernel-feature',
          hint: `set FAIRLEAD_STATE to a folder on ext4, xfs, btrfs or tmpfs${isRootless() ? '' : ', or empty this one'}`,
          cause,
        },
      );
    if (libc().mount(SOURCE, folder, 'tmpfs', 0, 'mode=755') !== 0) throw systemError('mount tmpfs', folder);
    const failure = overlayFailure(folder);
    if (failure === null) return memoryText(folder);
    libc().umount2(folder, MNT_DETACH);
    throw overlayError(folder, failure);
  } catch (error) {
    if (isNew) rmdirSync(folder);
    throw error;
  }
}

const memoryText = (folder: string): string =>
  `${folder} cannot hold the file systems of containers: the clusters' state is in memory there (a tmpfs), and is lost at a restart; to keep it, set FAIRLEAD_STATE to a folder on ext4, xfs or btrfs, such as a volume of the container`;

/** Reports whether a tmpfs is at the state folder because its file system cannot hold upper layers. */
function isMemory(folder: string): boolean {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  return mounts.some((line) => line.startsWith(`${SOURCE} `) && line.split(' ')[1] === folder);
}

/** Removes the probes of processes that were killed, and the tmpfs of `prepareStateFolder`, if nothing is left in it. */
export function releaseStateFolder(folder = stateRoot()): void {
  removeEndedProbes(folder);
  if (!statSync(folder, { throwIfNoEntry: false }) || !isMemory(folder)) return;
  if (readdirSync(folder).length > 0) return;
  if (libc().umount2(folder, MNT_DETACH) !== 0) throw systemError('unmount', folder);
  try {
    rmdirSync(folder);
  } catch (error) {
    if (!hasCode(error, 'ENOTEMPTY', 'EBUSY', 'EROFS')) throw error;
  }
}

/** Returns why a folder cannot hold containers' upper layers; null: it can. */
export function overlayFailure(folder: string): unknown {
  try {
    // In a user namespace "/" cannot be a layer, and is none of pods (src/runtime/host-root.ts).
    if (inUserNamespace()) probeOverlay(folder, layerOf('/usr'), ',userxattr');
    else probeOverlay(folder);
    return null;
  } catch (error) {
    return error;
  }
}

/** Returns a folder, or the first one in it, that has no mounts below it, which could not be a layer in a user namespace. */
function layerOf(folder: string): string {
  const mounts = mountsBelow(folder);
  if (mounts.length === 0) return folder;
  const inside = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(folder, name));
  return inside.find((path) => !mounts.some((point) => `${point}/`.startsWith(`${path}/`))) ?? folder;
}

/** Returns the error of a machine that cannot mount overlays at all. */
function overlayError(folder: string, cause: unknown): FairleadError {
  if (hasCode(cause, 'ENODEV'))
    return new FairleadError('this kernel lacks overlayfs (CONFIG_OVERLAY_FS)', {
      op: 'check kernel',
      code: 'missing-kernel-feature',
      hint: 'load it with "modprobe overlay", or use a kernel with it',
      cause,
    });
  if (hasCode(cause, 'EINVAL'))
    return new FairleadError(
      `overlays with / as a layer cannot be mounted, not even in a tmpfs: ${messageOf(cause)}`,
      {
        op: 'check kernel',
        code: 'missing-kernel-feature',
        hint: 'if / is an overlay of an overlay (a container in a container), start the inner container with its storage on a volume',
        cause,
      },
    );
  return new FairleadError(`overlays cannot be mounted in ${folder}: ${messageOf(cause)}`, {
    op: 'check kernel',
    code: 'missing-kernel-feature',
    hint: hasCode(cause, 'EPERM', 'EACCES')
      ? 'a profile of AppArmor or SELinux forbids it: run the container with --privileged'
      : 'set FAIRLEAD_STATE to another folder',
    cause,
  });
}
