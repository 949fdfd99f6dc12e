import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { spawnLight } from '../kernel/child-process.ts';
import { mappedIds } from '../kernel/id-maps.ts';
import { libc, systemError } from '../kernel/libc.ts';
import { inNetns, inNewNamespaces } from '../kernel/netns.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { writeSysctl } from '../kernel/sysctl.ts';
import type { Pod } from '../kube/types.ts';
import { hasCode } from '../lib/errors.ts';
import { KubeletError } from './kubelet-error.ts';

/** The namespaces of a pod, kept open by a pause process that only reaps processes. */
export interface Sandbox {
  readonly pause: ProcessIdentity;
  readonly createdAt: string;
}

const FILE = 'sandbox.json';
/** GROUP_RANGE_MAX of the kernel's net/ipv4/ping.c, rounded down to what containerd sets. */
const MAX_GROUP = 2_147_483_647;
/** The text that the pause process writes to its standard error. */
const ERRORS = 'pause.log';
const MAX_ERROR_BYTES = 1024;
/** The environment variable of pause processes with the folder of their pod. */
const MARK = 'FAIRLEAD_SANDBOX';

/** Returns the sandbox of a pod, if its pause process is still running. */
export function adoptSandbox(folder: string): Sandbox | null {
  const text = readOptionalFile(join(folder, FILE));
  if (text === null) return null;
  const sandbox = JSON.parse(text) as Sandbox;
  return isRunning(sandbox.pause) ? sandbox : null;
}

/** Starts a pod's pause process in new network, IPC and UTS namespaces, and sets the host name inside. */
export function createSandbox(folder: string, pod: Pod, hostname: string, now: Date): Sandbox {
  const settings = {
    hostname,
    sysctls: pod.spec?.securityContext?.sysctls ?? [],
    hostNetwork: pod.spec?.hostNetwork === true,
    // The sandbox also keeps open the process namespace that the containers share.
    sharesProcesses: pod.spec?.shareProcessNamespace === true,
  };
  // kernel.shm*, kernel.msg*, kernel.sem and fs.mqueue.* belong to the IPC namespace: the child sets them before it becomes
  // the pause process.
  const script = `cd / || exit 1
while [ $# -gt 1 ]; do printf %s "$2" > "/proc/sys/$1" || exit 1; shift 2; done
exec ${settings.sharesProcesses ? 'unshare --pid --fork --kill-child catatonit -P' : 'catatonit -P'}`;
  const ipc = settings.sysctls
    .filter(({ name }) => !name.startsWith('net.'))
    .flatMap(({ name, value }) => [name.replaceAll('.', '/'), value]);
  const errors = openSync(join(folder, ERRORS), 'w', 0o600);
  let pid: number;
  try {
    ({ pid } = inNewNamespaces(['net', 'ipc', 'uts'], () => {
      // Not by /proc/sys, which the root of a user namespace may not write.
      const name = Buffer.from(settings.hostname);
      if (libc().sethostname(name, name.length) !== 0) throw systemError('set host name', settings.hostname);
      return spawnLight('/bin/sh', ['-c', script, 'pause', ...ipc], {
        descriptors: ['ignore', 'ignore', errors],
        env: { ...process.env, [MARK]: folder },
        session: true,
      });
    }));
  } finally {
    closeSync(errors);
  }
  const pause = identify(pid);
  if (!pause) {
    if (pauseErrors(folder) !== '') throw pauseError(folder);
    throw new KubeletError('FailedCreatePodSandBox', 'the pause process did not start', {
      op: 'create sandbox',
      hint: 'install catatonit (Debian: apt-get install catatonit)',
    });
  }
  try {
    if (!settings.hostNetwork) {
      // Ports below 1024 and ping need no privileges inside a pod (containerd's defaults).
      const sysctls = [
        { name: 'net.ipv4.ip_unprivileged_port_start', value: '0' },
        { name: 'net.ipv4.ping_group_range', value: `0 ${lastGroup()}` },
        ...settings.sysctls,
      ];
      inNetns({ pid: pause.pid }, () => {
        for (const { name, value } of sysctls) if (name.startsWith('net.')) writeSysctl(name, value);
      });
    }
  } catch (error) {
    const ended = !isRunning(pause) || pauseErrors(folder) !== '';
    signalProcess(pause, 'SIGKILL');
    throw ended ? pauseError(folder, error) : error;
  }
  // Written when it is complete: a sandbox left by an earlier crash is found by its mark.
  const sandbox = { pause, createdAt: now.toISOString() };
  replaceFile(join(folder, FILE), JSON.stringify(sandbox));
  return sandbox;
}

/** Returns the highest group that a pod's process can have: the kernel refuses groups that are not mapped. */
function lastGroup(): number {
  return Math.max(...mappedIds('gid').map(({ first, count }) => Math.min(first + count - 1, MAX_GROUP)));
}

/**
 * Returns the process namespace that a sandbox's containers share: its pause process is the parent of the namespace's
 * first process, which reaps for all (pid_namespaces(7)).
 */
export function sharedPidNamespace(pausePid: number): string {
  return `/proc/${pausePid}/ns/pid_for_children`;
}

/** Returns the error of a pause process that has ended by itself. */
export function pauseError(folder: string, cause?: unknown): KubeletError {
  const reason = pauseErrors(folder) || 'it gave no reason';
  return new KubeletError('FailedCreatePodSandBox', `the pause process ended: ${reason}`, {
    op: 'create sandbox',
    ...(reason.includes('usage: catatonit') ? { hint: 'install catatonit 0.1.7 or later' } : {}),
    cause,
  });
}

/** Returns the reason that a pause process gave before it ended; empty: none, as when it was killed. */
export function pauseErrors(folder: string): string {
  const text = readOptionalFile(join(folder, ERRORS))?.trim() ?? '';
  return text.slice(0, MAX_ERROR_BYTES).replace(/\s*\n\s*/g, '; ');
}

/** Ends the pause process; its namespaces end after the containers. */
export function removeSandbox(folder: string): void {
  const file = join(folder, FILE);
  if (!existsSync(file)) return;
  const sandbox = JSON.parse(readFileSync(file, 'utf8')) as Sandbox;
  signalProcess(sandbox.pause, 'SIGKILL');
  rmSync(file, { force: true });
}

/** Ends pause processes of a node that an agent started but did not record before it was killed. */
export function sweepSandboxes(podsDir: string): void {
  for (const entry of readdirSync('/proc')) {
    if (!/^[0-9]+$/.test(entry)) continue;
    const folder = readEnvironment(entry, MARK);
    if (folder === null || dirname(folder) !== podsDir) continue;
    const process = identify(Number(entry));
    if (process && adoptSandbox(folder)?.pause.pid !== process.pid) signalProcess(process, 'SIGKILL');
  }
}

function readEnvironment(pid: string, name: string): string | null {
  try {
    const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
    return variables.find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1) ?? null;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH', 'EACCES')) return null;
    throw error;
  }
}
