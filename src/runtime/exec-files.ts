import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** Paths for one exec. The folder is there, the files are not. */
export interface ExecFiles {
  /** The process in the form of the OCI runtime's option `--process`. */
  readonly process: string;
  readonly pid: string;
  /** The OCI runtime's own messages. */
  readonly log: string;
}

/** Returns paths for a new exec on the node with this state folder. */
export function newExecFiles(stateDir: string): ExecFiles {
  const folder = execFolder(stateDir);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const base = join(folder, randomUUID());
  return { process: `${base}.json`, pid: `${base}.pid`, log: `${base}.log` };
}

/** Deletes the files of one exec. */
export function removeExecFiles(files: ExecFiles): void {
  for (const file of [files.process, files.pid, files.log]) rmSync(file, { force: true });
}

/** Deletes what execs of a node have left that were killed, at a time when none runs. */
export function removeExecFolder(stateDir: string): void {
  rmSync(execFolder(stateDir), { recursive: true, force: true });
}

/**
 * Returns the folder of the files of a node's execs: in memory, so that exec and exec probes do not depend on the state's disk.
 * It has no parent of its own: in an ordinary user's /run, that could be a link to root's.
 */
export const execFolder = (stateDir: string): string =>
  `/run/fairlead-exec-${createHash('sha256').update(resolve(stateDir)).digest('hex').slice(0, 16)}`;
