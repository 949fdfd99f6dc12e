import { accessSync, constants, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { controlGroupRoot } from '../kernel/control-group.ts';
import { inUserNamespace } from '../kernel/id-maps.ts';
import { hasCode } from '../lib/errors.ts';

/** The mounts of this machine's control groups. */
export interface ControlGroups {
  /** The path of the cgroup v2 hierarchy. */
  readonly root: string;
  /** v1 and v2 are mixed, which crun does not support: it must see only the v2 hierarchy. */
  readonly hybrid: boolean;
  /** Controllers of the v2 hierarchy: limits of other controllers cannot be set. */
  readonly controllers: ReadonlySet<string>;
}

/** Reads the cgroup v2 hierarchy below /sys/fs/cgroup. Returns null if there is none in which this process may make groups. */
export function readControlGroups(): ControlGroups | null {
  const root = controlGroupRoot();
  if (root === null || !isWritable(root)) return null;
  const controllers = readFileSync(`${root}/cgroup.controllers`, 'utf8').trim().split(/\s+/);
  return { root, hybrid: root !== '/sys/fs/cgroup', controllers: new Set(controllers) };
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch (error) {
    if (hasCode(error, 'EROFS', 'EACCES', 'EPERM')) return false;
    throw error;
  }
}

/** Returns the warning for the user of a machine on which containers have no control groups; null: they have. */
export function controlGroupWarning(): string | null {
  if (readControlGroups() !== null) return null;
  const reason = inUserNamespace()
    ? 'without root, the control groups of this machine cannot be written'
    : controlGroupRoot() === null
      ? 'no cgroup v2 hierarchy is mounted below /sys/fs/cgroup'
      : 'the cgroup v2 hierarchy at /sys/fs/cgroup cannot be written';
  return `${reason}: CPU and memory limits of pods have no effect, and the mode ebpf and fast failover are not available`;
}

const ROUNDS = 100;
const ROUND_MS = 10;

/** Removes an empty control group, waiting for its last processes to exit. Groups that do not become empty remain. */
export async function removeControlGroup(groups: ControlGroups, path: string): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    try {
      rmdirSync(join(groups.root, path));
      return;
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return;
      if (!hasCode(error, 'EBUSY', 'ENOTEMPTY')) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, ROUND_MS));
  }
}
