import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { listNetns, type NetnsRef, netnsPath } from '../../kernel/netns.ts';
import { hasCode } from '../../lib/errors.ts';

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
export function clientNamespaces({ cgroup, netns }: ControlGroupOwner): NetnsRef[] {
  const own: NetnsRef = netns ?? { pid: process.pid };
  const refs = [own, ...processes(cgroup).map((pid) => ({ pid })), ...listNetns()];
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

function processes(cgroup: string): number[] {
  const pids: number[] = [];
  const visit = (directory: string) => {
    let entries: Dirent[];
    try {
      const text = readFileSync(join(directory, 'cgroup.procs'), 'utf8');
      // 0: a process of another PID namespace.
      pids.push(
        ...text
          .split('\n')
          .map(Number)
          .filter((pid) => pid > 0),
      );
      entries = readdirSync(directory, { withFileTypes: true });
    } catch (error) {
      // The group was removed, or is threaded: its processes are listed in its parent.
      if (hasCode(error, 'ENOENT', 'ENODEV', 'EOPNOTSUPP')) return;
      throw error;
    }
    for (const entry of entries) if (entry.isDirectory()) visit(join(directory, entry.name));
  };
  visit(cgroup);
  return pids;
}
