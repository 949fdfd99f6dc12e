import { readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { controlGroupRoot } from '../kernel/control-group.ts';
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

/** Reads the cgroup v2 hierarchy below /sys/fs/cgroup. Returns null if none is mounted. */
export function readControlGroups(): ControlGroups | null {
  const root = controlGroupRoot();
  if (root === null) return null;
  const controllers = readFileSync(`${root}/cgroup.controllers`, 'utf8').trim().split(/\s+/);
  return { root, hybrid: root !== '/sys/fs/cgroup', controllers: new Set(controllers) };
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
