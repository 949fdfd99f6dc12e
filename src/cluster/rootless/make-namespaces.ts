import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { requireCatatonit } from '../../runtime/catatonit.ts';
import { runtimeFolder } from './holder.ts';
import { readSubordinateRanges } from './id-map-files.ts';
import { userNamespaceProblem } from './user-namespace-problem.ts';

/**
 * Prepares the mounts of the new namespaces: a writable /run with the machine's entries, except those that belong to the
 * machine's namespaces; and the control groups as one read-only hierarchy, since crun does not work with mixed ones, and those
 * of a user's session belong to the session's manager. Then keeps the namespaces open, with as little memory as possible.
 */
const PREPARE = `set -e
cd /
mount -n -t tmpfs -o mode=755,nosuid,nodev fairlead "$1"
mkdir "$1/machine"
mount -n --rbind /run "$1/machine"
for entry in /run/*; do
  case $entry in /run/netns | /run/xtables.lock | '/run/*') ;; *) ln -s "machine/\${entry#/run/}" "$1/\${entry#/run/}" ;; esac
done
mount -n --move "$1" /run
mount -n -t cgroup2 -o ro cgroup2 /sys/fs/cgroup 2>/dev/null || true
echo ready
exec catatonit -P </dev/null >/dev/null 2>&1
`;

/**
 * Makes the namespaces of an ordinary user, and returns the PID of the process that keeps them open: a user namespace, in which
 * the user is root, and mount, network, IPC, UTS and control group namespaces that belong to it. The machine's process namespace is
 * shared: PIDs mean the same inside and outside, and commands enter without a process between them and the user's shell.
 *
 * Throws FairleadError with the setting of the machine that forbids it, if one is known. `folder`: where it needs a folder to
 * mount on.
 */
export async function makeNamespaces(folder = runtimeFolder()): Promise<number> {
  const known = userNamespaceProblem();
  if (known) throw impossible(known.message, known.hint);
  await requireCatatonit();
  // A process that only creates the user namespace: its ids must be mapped before a program in it can be root.
  const first = spawn('unshare', ['--user', 'cat'], { stdio: ['pipe', 'pipe', 'pipe'] });
  try {
    await firstLine(first, 'make a user namespace', () => first.stdin.write('made\n'));
    mapIds(first.pid ?? 0);
    const run = join(folder, 'run');
    mkdirSync(run, { recursive: true, mode: 0o700 });
    const holder = spawn(
      'nsenter',
      [
        ...['--user', '--preserve-credentials', '--target', String(first.pid), '--'],
        ...['unshare', '--mount', '--propagation', 'slave', '--net', '--ipc', '--uts', '--cgroup'],
        ...['sh', '-c', PREPARE, 'sh', run],
      ],
      // It outlives this command and its terminal.
      { detached: true, cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] },
    );
    holder.unref();
    await firstLine(holder, 'make namespaces');
    holder.stdout?.destroy();
    holder.stderr?.destroy();
    return holder.pid ?? 0;
  } finally {
    first.kill('SIGKILL');
  }
}

/** The words with which nsenter(1) enters the namespaces that a process keeps open. `network`: also that of clusters. */
export const insideWords = (holder: number, network = true): readonly string[] => [
  ...['--user', '--preserve-credentials', '--mount', '--ipc', '--uts', '--cgroup'],
  ...(network ? ['--net'] : []),
  ...['--target', String(holder)],
];

/** Waits for a line of a child's output. Throws FairleadError with its error output if it ends before. */
async function firstLine(child: ChildProcess, op: string, onStart: () => void = () => {}): Promise<void> {
  const { stdout, stderr } = child as ChildProcess & { stdout: Readable; stderr: Readable };
  let errors = '';
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(0, 2000);
  });
  const missing = once(child, 'error').then(([error]: unknown[]) => {
    const { path = 'a program' } = error as { path?: string };
    throw hasCode(error, 'ENOENT')
      ? new FairleadError(`${path} is not installed`, {
          op,
          code: 'ENOENT',
          hint: 'install it first (Debian: sudo apt-get install util-linux)',
        })
      : impossible(`failed to ${op}: ${messageOf(error)}`);
  });
  // EPIPE: the child has ended, which the line below reports.
  child.stdin?.on('error', () => {});
  onStart();
  const line = Promise.race([once(stdout, 'data'), once(child, 'close').then(() => null)]);
  if ((await Promise.race([line, missing])) === null)
    throw impossible(`failed to ${op}: ${errors.trim() || 'no reason given'}`);
  missing.catch(() => {});
}

/**
 * Maps the user to root, and the user's further ids (subuid(5)) to the ids from 1 on, as newuidmap does for container
 * programs; without it, or without such ids, the user is the only id.
 */
function mapIds(pid: number): void {
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  const ranges = readSubordinateRanges(userName(), uid);
  const map = (program: string, own: number, { start, count }: { start: number; count: number }) =>
    spawnSync(program, [pid, 0, own, 1, 1, start, count].map(String), { stdio: 'ignore' }).status === 0;
  // The group first: without it, the single map could no longer be written.
  if (ranges && map('newgidmap', gid, ranges.gids) && map('newuidmap', uid, ranges.uids)) return;
  const write = (file: string, text: string) => writeFileSync(`/proc/${pid}/${file}`, text);
  try {
    // Groups that the user may not leave could forbid access (user_namespaces(7)).
    if (readFileSync(`/proc/${pid}/gid_map`, 'utf8').trim() === '') {
      write('setgroups', 'deny');
      write('gid_map', `0 ${gid} 1\n`);
    }
    write('uid_map', `0 ${uid} 1\n`);
  } catch (error) {
    throw impossible(`the kernel refuses the ids of a user namespace: ${messageOf(error)}`);
  }
}

function userName(): string | null {
  try {
    return userInfo().username;
  } catch (error) {
    // A user that is not in /etc/passwd.
    if (hasCode(error, 'ERR_SYSTEM_ERROR', 'ENOENT')) return null;
    throw error;
  }
}

function impossible(reason: string, hint?: string): FairleadError {
  return new FairleadError(`an ordinary user cannot start a cluster on this machine: ${reason}`, {
    op: 'make namespaces',
    code: 'not-root',
    hint:
      hint ??
      'start the cluster as root: sudo fairlead up. Other reasons are a container, seccomp or a security module that forbids user namespaces',
  });
}
