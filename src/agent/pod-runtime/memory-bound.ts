import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hasCode } from '../../lib/errors.ts';

const PREFIX = 'runtime-';

/**
 * Bounds the memory of a process and of its future children by a control group of its own below `parent`, a path in the
 * cgroup v2 hierarchy at `root`. Returns the folder of the group; null: the hierarchy has no memory controller. Throws if it
 * cannot be written. Each run has its own group: memory that an earlier run has left, such as that of tmpfs files, does not
 * count against the next.
 */
export async function boundMemory(
  root: string,
  parent: string,
  pid: number,
  bytes: number,
): Promise<string | null> {
  if (!readFileSync(join(root, 'cgroup.controllers'), 'utf8').split(/\s+/).includes('memory')) return null;
  let folder = root;
  for (const name of ['', ...parent.split('/').filter((part) => part !== '')]) {
    folder = join(folder, name);
    mkdirSync(folder, { recursive: true, mode: 0o755 });
    writeFileSync(join(folder, 'cgroup.subtree_control'), '+memory');
  }
  removeEmptyGroups(folder);
  const group = join(folder, `${PREFIX}${pid}`);
  mkdirSync(group, { recursive: true });
  writeFileSync(join(group, 'memory.max'), String(bytes));
  try {
    writeFileSync(join(group, 'memory.swap.max'), '0');
  } catch (error) {
    // A kernel that does not account for swap.
    if (!hasCode(error, 'ENOENT', 'EACCES')) throw error;
  }
  // On another thread: the move waits for an RCU grace period.
  await writeFile(join(group, 'cgroup.procs'), String(pid));
  return group;
}

/** Removes groups of earlier runs; those with the monitors of running containers stay. */
function removeEmptyGroups(folder: string): void {
  for (const name of readdirSync(folder).filter((entry) => entry.startsWith(PREFIX))) {
    try {
      rmdirSync(join(folder, name));
    } catch (error) {
      if (!hasCode(error, 'EBUSY', 'ENOENT', 'ENOTEMPTY')) throw error;
    }
  }
}

/** Returns how often the kernel has killed a process of the group for memory (memory.events of cgroup v2). */
export function memoryKills(group: string): number {
  try {
    return Number(/^oom_kill (\d+)$/m.exec(readFileSync(join(group, 'memory.events'), 'utf8'))?.[1] ?? 0);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENODEV')) return 0;
    throw error;
  }
}

/** Returns the bytes of a process's own memory, without the pages of files; 0: it has ended (proc(5), RssAnon). */
export function ownMemory(pid: number): number {
  try {
    const text = readFileSync(`/proc/${pid}/status`, 'latin1');
    return Number(/^RssAnon:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return 0;
    throw error;
  }
}
