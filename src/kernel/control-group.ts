import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { inUserNamespace } from './id-maps.ts';

// linux/magic.h
const CGROUP2_SUPER_MAGIC = 0x63677270;

/** Where the installed objects mount the node's hierarchies in the agent's container, which may see only its own. */
export const NODE_CONTROL_GROUPS = '/host/sys/fs/cgroup';

/**
 * Returns the root of the node's cgroup v2 hierarchy: /sys/fs/cgroup, or its subdirectory "unified" where v1
 * hierarchies are mounted too. Null: none, or none that was delegated to the user of this user namespace.
 */
export function controlGroupRoot(): string | null {
  for (const folder of [NODE_CONTROL_GROUPS, '/sys/fs/cgroup']) {
    for (const root of [folder, `${folder}/unified`]) {
      try {
        if (statfsSync(root).type === CGROUP2_SUPER_MAGIC) return isUsable(root) ? root : null;
      } catch (error) {
        if (!hasCode(error, 'ENOENT')) throw error;
      }
    }
  }
  return null;
}

/** The root of a user namespace may write only what belongs to one of its ids. */
function isUsable(root: string): boolean {
  if (!inUserNamespace()) return true;
  try {
    accessSync(root, constants.W_OK);
    accessSync(join(root, 'cgroup.procs'), constants.W_OK);
    return true;
  } catch (error) {
    if (hasCode(error, 'EACCES', 'EROFS', 'EPERM')) return false;
    throw error;
  }
}

/** Creates the control group's directory if it is missing. */
export function makeControlGroup(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw new FairleadError(`cannot create control group ${path}`, {
      op: 'create control group',
      code: hasCode(error, 'EROFS', 'EACCES') ? 'EACCES' : 'EIO',
      object: path,
      hint: 'mount the cgroup v2 hierarchy writable',
      cause: error,
    });
  }
}

/** Returns the processes of a control group and of those below it; not those of other PID namespaces. */
export function processesBelow(group: string): number[] {
  try {
    const pids = readFileSync(join(group, 'cgroup.procs'), 'utf8').split('\n').map(Number);
    const below = readdirSync(group, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    // Of a process of another PID namespace, the kernel shows 0.
    return pids
      .filter((pid) => pid > 0)
      .concat(below.flatMap(({ name }) => processesBelow(join(group, name))));
  } catch (error) {
    // The group was removed, or is threaded: its processes are listed in its parent.
    if (hasCode(error, 'ENOENT', 'ENODEV', 'EOPNOTSUPP')) return [];
    throw error;
  }
}

let visits = 0;

/**
 * Runs `work` with this process in a separate control group below one of the v2 hierarchy ("/fairlead-default/node-1"),
 * and then moves the process back; `parent` null: runs it in the present group. A socket made inside keeps that group, so
 * that the programs attached to it apply. `work` must be synchronous. Takes 0.3 ms, and up to 40 ms on a busy machine,
 * since each of the two moves waits for an RCU grace period.
 */
export function inControlGroup<T>(parent: string | null, work: () => T): T {
  const root = parent === null ? null : controlGroupRoot();
  // Without a hierarchy, no programs are attached to groups.
  if (parent === null || root === null) return work();
  // cgroups(7): "0::/path" is the v2 hierarchy's line.
  const line = readFileSync('/proc/self/cgroup', 'utf8')
    .split('\n')
    .find((text) => text.startsWith('0::'));
  const enter = (group: string) => writeFileSync(join(group, 'cgroup.procs'), `${process.pid}`);
  // A separate group, since a group with controllers enabled for its children takes no processes.
  const group = join(root, parent, `visitor-${process.pid}-${visits++}`);
  mkdirSync(group);
  try {
    enter(group);
    try {
      return work();
    } finally {
      enter(join(root, line?.slice(3) ?? '/'));
    }
  } finally {
    rmdirSync(group);
  }
}
