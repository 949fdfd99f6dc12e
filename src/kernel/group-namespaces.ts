import { statSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';
import { processesBelow } from './control-group.ts';
import { listNetns, type NetnsRef, netnsPath } from './netns.ts';

export interface ControlGroupOwner {
  /** Directory of the control group whose processes have the sockets. */
  readonly cgroup: string;
  /** The node's network namespace; null: that of this process. */
  readonly netns: NetnsRef | null;
}

/**
 * Returns the network namespaces of the node, of the processes in its control group, and all named ones: in
 * a container that cannot see the processes of other containers, the namespaces of pods are found by name.
 */
export function groupNamespaces({ cgroup, netns }: ControlGroupOwner): NetnsRef[] {
  const own: NetnsRef = netns ?? { pid: process.pid };
  const refs = [own, ...processesBelow(cgroup).map((pid) => ({ pid })), ...listNetns()];
  const found = new Map<bigint, NetnsRef>();
  for (const ref of refs) {
    try {
      const { ino } = statSync(netnsPath(ref), { bigint: true });
      if (!found.has(ino)) found.set(ino, ref);
    } catch (error) {
      // The process or namespace no longer exists.
      if (!hasCode(error, 'ENOENT', 'ESRCH', 'EACCES')) throw error;
    }
  }
  return [...found.values()];
}
