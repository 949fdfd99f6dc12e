import { mkdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { errnoName, libc, systemError } from '../../kernel/libc.ts';
import { listNetns } from '../../kernel/netns.ts';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../../kernel/process-identity.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { listClusters, readSupervision, stateRoot } from '../state.ts';

// sys/file.h, bits/fcntl-linux.h
const LOCK_SH = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;
const O_RDWR = 2;
const O_CREAT = 0o100;
const O_CLOEXEC = 0o2000000;
const RETRY_MS = 5;
const LOCK_MS = 30_000;

/** The record of the process that keeps a user's namespaces open. A PID means nothing after a reboot. */
interface HolderRecord {
  readonly holder: ProcessIdentity;
  readonly boot: string;
}

/**
 * Returns the folder with the record of the namespaces of these clusters: below $XDG_RUNTIME_DIR if it is the user's, else
 * below the state folder.
 */
export function runtimeFolder(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string {
  const { XDG_RUNTIME_DIR: base } = environment;
  const name = stateRoot().replaceAll('/', '-').replace(/^-/, '');
  return base && isOwn(base) ? join(base, 'fairlead', name) : namespacesFolder();
}

/** Returns the folder with what every command has to find, also one without $XDG_RUNTIME_DIR. */
export const namespacesFolder = (): string => join(stateRoot(), '.namespaces');

/** Returns the folder of sockets below $XDG_RUNTIME_DIR; null: that is not the user's, and they are in the state folder. */
export function socketsFolder(): string | null {
  const folder = runtimeFolder();
  return folder === namespacesFolder() ? null : join(folder, 'sockets');
}

function isOwn(folder: string): boolean {
  const found = statSync(folder, { throwIfNoEntry: false });
  return found?.isDirectory() === true && found.uid === process.getuid?.();
}

const recordFile = () => join(runtimeFolder(), 'holder.json');

/** Returns a running process in the user's namespaces, which keeps them open; null: there are none. */
export function findHolder(): ProcessIdentity | null {
  return recordedHolder() ?? clusterProcess();
}

function recordedHolder(): ProcessIdentity | null {
  const text = readOptionalFile(recordFile());
  if (text === null) return null;
  const { holder, boot } = JSON.parse(text) as HolderRecord;
  return boot === bootId() && isRunning(holder) ? holder : null;
}

/** Returns a process of one of the clusters, which run on if the holder was killed. */
function clusterProcess(): ProcessIdentity | null {
  for (const name of listClusters()) {
    const { supervisor, standby, processes } = readSupervision(name);
    const all = [supervisor, standby, ...Object.values(processes).map(({ identity }) => identity)];
    const found = all.find(isRunning);
    if (found) return found;
  }
  return null;
}

export function recordHolder(pid: number): ProcessIdentity {
  const holder = identify(pid);
  if (!holder)
    throw new FairleadError('the process that keeps the namespaces open has ended', {
      op: 'make namespaces',
      code: 'ended',
    });
  replaceFile(recordFile(), JSON.stringify({ holder, boot: bootId() } satisfies HolderRecord));
  return holder;
}

const bootId = () => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();

/** A lock on the namespaces of a user: shared by commands that use them, exclusive for the one that makes or ends them. */
export interface NamespaceLock {
  readonly descriptor: number;
  share(): void;
  release(): void;
}

/** Waits for the exclusive lock. Throws FairleadError "locked" if another command keeps it. */
export async function lockNamespaces(): Promise<NamespaceLock> {
  const folder = runtimeFolder();
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new FairleadError(`cannot create ${folder}`, {
      op: 'make namespaces',
      code: hasCode(error, 'EROFS', 'EACCES') ? 'EACCES' : 'EIO',
      object: folder,
      hint: 'set XDG_STATE_HOME, or FAIRLEAD_STATE, to a folder of yours',
      cause: error,
    });
  }
  const path = join(folder, 'lock');
  // A program that outlives this command, and had the descriptor, would keep the lock.
  const descriptor = libc().open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600);
  if (descriptor < 0) throw systemError('open the lock', path);
  const end = performance.now() + LOCK_MS;
  while (libc().flock(descriptor, LOCK_EX | LOCK_NB) !== 0) {
    const isHeld = errnoName(libc().errno()) === 'EAGAIN';
    if (isHeld && performance.now() < end) {
      await setTimeout(RETRY_MS);
      continue;
    }
    libc().close(descriptor);
    throw new FairleadError(
      `another command has been making or ending your namespaces for ${LOCK_MS / 1000} s`,
      {
        op: 'make namespaces',
        code: 'locked',
        object: path,
      },
    );
  }
  return {
    descriptor,
    share: () => void libc().flock(descriptor, LOCK_SH),
    release: () => void libc().close(descriptor),
  };
}

/**
 * Waits until no command makes or ends the namespaces, and keeps them from being ended as long as this process, or the program
 * that it becomes, is running. Returns the lock's descriptor; null: there are no namespaces.
 */
export function shareNamespaces(): number | null {
  const path = join(runtimeFolder(), 'lock');
  const descriptor = libc().open(path, O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) return null;
  libc().flock(descriptor, LOCK_SH);
  return descriptor;
}

/**
 * Ends the namespaces that this process is in, if no cluster and no other command uses them: their last process is then this
 * one. `descriptor`: its shared lock. Returns whether they end.
 */
export function endUnusedNamespaces(descriptor: number): boolean {
  if (listNetns().some((name) => name.startsWith('fl-'))) return false;
  if (libc().flock(descriptor, LOCK_EX | LOCK_NB) !== 0) return false;
  return endHolder();
}

/** Ends the namespaces from outside, if no cluster has a process in them, as after a start that failed. */
export function discardNamespaces(): void {
  if (clusterProcess() === null) endHolder();
}

function endHolder(): boolean {
  const holder = recordedHolder();
  if (!holder) return false;
  rmSync(recordFile(), { force: true });
  signalProcess(holder, 'SIGKILL');
  return true;
}
