import { existsSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { libc } from '../kernel/libc.ts';
import { MNT_DETACH } from '../kernel/mount-flags.ts';
import { mountsBelow } from '../kernel/mount-points.ts';
import { readOptionalFolder } from '../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../kernel/process-identity.ts';
import { blockFor } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';
import { readControlGroups } from './control-groups.ts';
import { monitorOf } from './run-monitor.ts';
import type { Sandbox } from './sandbox.ts';

const ROUNDS = 200;
const ROUND_MS = 10;

/**
 * Ends and removes everything that the runtime of a node left behind, running or crashed: processes (each verified to
 * be the recorded one), mounts, control groups, files. The agent must not be running. The state folder itself remains.
 * Idempotent.
 */
export async function removeRuntimeState(stateDir: string, cgroupParent: string): Promise<void> {
  const doomed = [...recordedProcesses(stateDir), ...groupProcesses(cgroupParent)];
  for (const one of doomed) signalProcess(one, 'SIGKILL');
  for (let round = 0; round < ROUNDS; round++) {
    // Forked in the meantime.
    const late = groupProcesses(cgroupParent);
    for (const one of late) signalProcess(one, 'SIGKILL');
    if (late.length === 0 && !doomed.some(isRunning)) break;
    await new Promise((resolve) => setTimeout(resolve, ROUND_MS));
  }
  unmountBelow(stateDir);
  for (const group of groupFolders(cgroupParent).reverse()) removeGroup(group);
  for (const part of ['pods', 'runtime']) rmSync(join(stateDir, part), { recursive: true, force: true });
}

/** Unmounts everything below a folder, so that its removal deletes no file of another file system. */
export function unmountBelow(folder: string): void {
  for (const target of mountsBelow(folder)) libc().umount2(target, MNT_DETACH);
}

/** Returns pause processes, containers and their monitors from the files that record them. */
function recordedProcesses(stateDir: string): ProcessIdentity[] {
  const found: ProcessIdentity[] = [];
  const pods = join(stateDir, 'pods');
  for (const uid of readOptionalFolder(pods)) {
    const sandbox = readJson(join(pods, uid, 'sandbox.json')) as Sandbox | null;
    if (sandbox) found.push(sandbox.pause);
    const containers = join(pods, uid, 'containers');
    for (const name of readOptionalFolder(containers)) {
      const state = readJson(join(containers, name, 'state.json')) as { process?: ProcessIdentity } | null;
      if (state?.process) found.push(state.process);
      for (const run of readOptionalFolder(join(containers, name)).filter((entry) =>
        entry.startsWith('run-'),
      )) {
        const monitor = monitorOf(join(containers, name, run));
        if (monitor) found.push(monitor);
      }
    }
  }
  return found;
}

/** Returns folders of control groups at and below the node's, outermost first, in every hierarchy. */
function groupFolders(cgroupParent: string): string[] {
  const groups = readControlGroups();
  if (!groups || cgroupParent.replace(/\//g, '') === '') return [];
  const top = join(groups.root, cgroupParent);
  if (!existsSync(top)) return [];
  const below = readdirSync(top, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name));
  return [top, ...below.sort()];
}

function groupProcesses(cgroupParent: string): ProcessIdentity[] {
  return groupFolders(cgroupParent).flatMap((group) => {
    try {
      const pids = readFileSync(join(group, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean);
      return pids.map((pid) => identify(Number(pid))).filter((one) => one !== null);
    } catch (error) {
      // EOPNOTSUPP: a threaded group, whose processes the parent group lists.
      if (hasCode(error, 'ENOENT', 'ENODEV', 'EOPNOTSUPP')) return [];
      throw error;
    }
  });
}

function removeGroup(group: string): void {
  try {
    rmdirSync(group);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return;
    // A zombie still counts for a moment; as a last resort the whole group is killed (kernel 5.14).
    if (!hasCode(error, 'EBUSY')) throw error;
    if (hasForeignProcesses(group)) return;
    writeFileSync(join(group, 'cgroup.kill'), '1');
    for (let round = 0; round < ROUNDS && existsSync(group); round++) {
      blockFor(ROUND_MS);
      try {
        rmdirSync(group);
      } catch (again) {
        if (!hasCode(again, 'EBUSY', 'ENOENT')) throw again;
      }
    }
  }
}

/**
 * Reports whether processes of another PID namespace, which the kernel shows as 0, are in a group or below it: those of a cluster
 * of the same name in another container that sees the same hierarchy.
 */
function hasForeignProcesses(group: string): boolean {
  try {
    if (readFileSync(join(group, 'cgroup.procs'), 'utf8').split('\n').includes('0')) return true;
    const below = readdirSync(group, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    return below.some(({ name }) => hasForeignProcesses(join(group, name)));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENODEV', 'EOPNOTSUPP')) return false;
    throw error;
  }
}

function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    // Ignores a file truncated by a crash: the control group lists the processes.
    if (hasCode(error, 'ENOENT') || error instanceof SyntaxError) return null;
    throw error;
  }
}
