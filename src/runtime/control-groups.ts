import { readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { controlGroupRoot } from '../kernel/control-group.ts';
import { hasCode } from '../lib/errors.ts';

/** How this machine's control groups are mounted. */
export interface ControlGroups {
  /** Where the cgroup v2 hierarchy is. */
  readonly root: string;
  /** v1 and v2 are mixed, which crun refuses: it must be shown the v2 hierarchy alone. */
  readonly hybrid: boolean;
  /** Controllers that the v2 hierarchy has: limits of others cannot be set. */
  readonly controllers: ReadonlySet<string>;
}

/** Looks at /sys/fs/cgroup. Null when there is no cgroup v2 hierarchy. */
export function readControlGroups(): ControlGroups | null {
  const root = controlGroupRoot();
  if (root === null) return null;
  const controllers = readFileSync(`${root}/cgroup.controllers`, 'utf8').trim().split(/\s+/);
  return { root, hybrid: root !== '/sys/fs/cgroup', controllers: new Set(controllers) };
}

const ROUNDS = 100;
const ROUND_MS = 10;

/** Removes an empty control group; its last processes may be about to go. What does not empty stays. */
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
