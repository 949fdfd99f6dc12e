import { existsSync, mkdirSync, readFileSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Readable } from 'node:stream';
import { type LightChild, pipeFromChild, spawnAsync } from '../kernel/child-process.ts';
import { identify, type ProcessIdentity, signalProcess } from '../kernel/process-identity.ts';
import { findProgram } from '../kernel/program-path.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { spreadFolders } from '../kernel/spread-folders.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { ControlGroups } from './control-groups.ts';
import { newExecFiles, removeExecFiles } from './exec-files.ts';
import { KubeletError } from './kubelet-error.ts';
import { monitorOf } from './run-monitor.ts';
import type { TerminalSize } from './streams/remote-command.ts';

/** Folders that the OCI runtime and its monitors use, below a node's state. */
export interface RuntimePaths {
  /** The node's state. */
  readonly stateDir: string;
  readonly root: string;
  /** crun's own state. */
  readonly crun: string;
  /** conmon writes an exited container's code here, in a file of the container's name. */
  readonly exits: string;
  /** The program of the OCI runtime. */
  readonly program: string;
  /** The same for calls that do not look at control groups. */
  readonly plainProgram: string;
  /** "disabled": containers get no control groups (readControlGroups). */
  readonly cgroupManager: 'cgroupfs' | 'disabled';
}

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Returns the folder of a node in which crun keeps an entry for each container. */
export const containersFolder = (stateDir: string): string => join(stateDir, 'runtime', 'crun');

/** Creates the folders and, on machines with mixed control groups, the wrapper that lets crun see only the v2 hierarchy. */
export function prepareRuntime(stateDir: string, groups: ControlGroups | null): RuntimePaths {
  const root = join(stateDir, 'runtime');
  // conmon does not search the PATH. The bare name, for the error message.
  const plainProgram = findProgram('crun') ?? 'crun';
  // Even without control groups crun looks at the file system there.
  const isPlain = groups === null && isPlainFolder('/sys/fs/cgroup');
  const paths = {
    stateDir,
    root,
    crun: containersFolder(stateDir),
    exits: join(root, 'exits'),
    program: groups?.hybrid ? join(root, 'crun-v2') : isPlain ? join(root, 'crun-none') : plainProgram,
    plainProgram,
    cgroupManager: groups === null ? ('disabled' as const) : ('cgroupfs' as const),
  };
  for (const path of [paths.crun, paths.exits]) mkdirSync(path, { recursive: true, mode: 0o700 });
  spreadFolders(paths.crun);
  if (groups?.hybrid)
    writeWrapper(
      paths,
      `mount --bind ${groups.root} /sys/fs/cgroup`,
      'crun refuses mixed control groups; in a separate mount namespace it sees the v2 hierarchy alone',
    );
  if (isPlain)
    writeWrapper(
      paths,
      'mount -t tmpfs tmpfs /sys/fs/cgroup',
      'crun refuses a folder without control groups; in a separate mount namespace it sees an empty v1 hierarchy',
    );
  return paths;
}

/** Writes a program that starts crun in a mount namespace in which `mount` has run. */
function writeWrapper({ program, plainProgram }: RuntimePaths, mount: string, reason: string): void {
  const script = `#!/bin/sh
# ${reason}.
exec unshare --mount --propagation slave /bin/sh -c '${mount} && exec "$0" "$@"' '${plainProgram.replaceAll("'", "'\\''")}' "$@"
`;
  // Replaced atomically: a running call may be reading it.
  replaceFile(program, script, 0o700);
}

// linux/magic.h
const CGROUP2_SUPER_MAGIC = 0x63677270;
const TMPFS_MAGIC = 0x01021994;

/** Reports whether a folder is neither a cgroup v2 hierarchy nor the tmpfs in which v1 hierarchies are mounted. */
function isPlainFolder(folder: string): boolean {
  try {
    return ![CGROUP2_SUPER_MAGIC, TMPFS_MAGIC].includes(statfsSync(folder).type);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}

/** Runs a command to its end; never throws for its exit status. `onTimeout` is called before it is killed. */
export async function runCommand(
  file: string,
  args: readonly string[],
  options: { readonly timeoutMs?: number; readonly onTimeout?: () => void } = {},
): Promise<CommandResult> {
  const [out, err] = [pipeFromChild(), pipeFromChild()];
  const close = () => {
    out.close();
    err.close();
  };
  let child: LightChild;
  try {
    child = await spawnAsync(file, args, { descriptors: ['ignore', out.descriptor, err.descriptor] });
  } catch (error) {
    close();
    for (const { stream } of [out, err]) stream.destroy();
    throw missingProgram(file, error);
  }
  close();
  let timedOut = false;
  const timer = options.timeoutMs
    ? setTimeout(() => {
        timedOut = true;
        options.onTimeout?.();
        signalChild(child.pid);
        // Processes that the command has left in its container keep the other ends open.
        for (const { stream } of [out, err]) stream.destroy();
      }, options.timeoutMs)
    : undefined;
  const [stdout, stderr, code] = await Promise.all([textOf(out.stream), textOf(err.stream), child.exited]);
  clearTimeout(timer);
  return { code: timedOut ? 124 : code, stdout, stderr: timedOut ? 'command timed out' : stderr };
}

/** Kills a child that has not been reaped, so its PID is still valid. */
function signalChild(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (!hasCode(error, 'ESRCH')) throw error;
  }
}

/** Bytes that are kept of each output of a command: a container's probe may print without end (upstream's exec probe). */
const MAX_OUTPUT_BYTES = 10 * 1024;

/** Reads a stream until it is closed, and returns its start. */
function textOf(stream: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  let left = MAX_OUTPUT_BYTES;
  stream.on('data', (chunk: Buffer) => {
    if (left > 0) chunks.push(Buffer.from(chunk.subarray(0, left)));
    left -= Math.min(left, chunk.length);
  });
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    stream.on('close', () => resolve(Buffer.concat(chunks).toString('utf8')));
  });
}

function missingProgram(file: string, cause: unknown): FairleadError {
  const name = basename(file);
  return new FairleadError(`failed to run ${file}: ${messageOf(cause)}`, {
    op: 'run command',
    code: hasCode(cause, 'ENOENT') ? 'ENOENT' : 'EIO',
    hint: `install ${name} (Debian: apt-get install ${name})`,
    cause,
  });
}

const crunArgs = ({ crun, cgroupManager }: RuntimePaths) => [
  `--root=${crun}`,
  `--cgroup-manager=${cgroupManager}`,
];

/**
 * Creates a container from a bundle (config.json in `bundle`), watched by a conmon that outlives this process, and
 * starts it. Resolves to the container's first process. Throws FairleadError with crun's message. `onCreated` is called before
 * the container's program runs; if it throws, the container is removed.
 */
export async function startContainer(
  paths: RuntimePaths,
  container: {
    readonly id: string;
    readonly bundle: string;
    readonly log: string;
    readonly stdin: boolean;
    /** The input ends with the first attached client. */
    readonly stdinOnce: boolean;
    readonly tty: boolean;
  },
  onCreated: (process: ProcessIdentity) => void = () => {},
): Promise<ProcessIdentity> {
  const { id, bundle } = container;
  const args = [
    ...['--api-version', '1', '-b', bundle, '-c', id, '-u', id, '-n', id, '-r', paths.program],
    ...crunArgs(paths).flatMap((argument) => ['--runtime-arg', argument]),
    ...[
      '-p',
      join(bundle, 'pid'),
      '-P',
      join(bundle, 'conmon.pid'),
      '--exit-dir',
      paths.exits,
      '--persist-dir',
      bundle,
    ],
    ...['-l', `k8s-file:${container.log}`, '--log-size-max', String(10 * 1024 * 1024)],
    // The socket for attaching is then `attach` in the bundle, even if the bundle's path is long.
    ...['--log-level', 'error', '--no-sync-log', '--full-attach'],
    ...(container.stdin ? ['-i'] : []),
    ...(container.stdin && !container.stdinOnce ? ['--leave-stdin-open'] : []),
    ...(container.tty ? ['-t'] : []),
  ];
  const answer = await conmon(args);
  if (answer.pid <= 0) {
    await deleteContainer(paths, id);
    throw runtimeError('create', id, answer.message);
  }
  const process = identify(answer.pid);
  if (!process) throw runtimeError('create', id, 'its process ended immediately');
  try {
    onCreated(process);
  } catch (error) {
    await deleteContainer(paths, id);
    throw error;
  }
  const started = await runCommand(paths.plainProgram, [...crunArgs(paths), 'start', id]);
  if (started.code !== 0) {
    await deleteContainer(paths, id);
    throw runtimeError('start', id, started.stderr);
  }
  return process;
}

/** Starts conmon and reads the response from its sync pipe: {"data": PID} or {"data": -1, "message": …}. */
async function conmon(args: readonly string[]): Promise<{ pid: number; message: string }> {
  const [errors, sync] = [pipeFromChild(), pipeFromChild()];
  try {
    await spawnAsync('conmon', args, {
      descriptors: ['ignore', 'ignore', errors.descriptor, sync.descriptor],
      env: { ...process.env, _OCI_SYNCPIPE: '3' },
      session: true,
    });
  } catch (error) {
    throw missingProgram('conmon', error);
  } finally {
    for (const pipe of [errors, sync]) pipe.close();
  }
  let errorOutput = '';
  errors.stream.setEncoding('utf8').on('data', (text: string) => {
    errorOutput = (errorOutput + text).slice(0, MAX_OUTPUT_BYTES);
  });
  errors.stream.on('error', () => {});
  try {
    let answer = '';
    for await (const chunk of sync.stream) {
      answer += String(chunk);
      const end = answer.indexOf('\n');
      if (end < 0) continue;
      const { data = -1, message = '' } = JSON.parse(answer.slice(0, end)) as {
        data?: number;
        message?: string;
      };
      return { pid: data, message: message || errorOutput };
    }
    return { pid: -1, message: errorOutput || 'conmon ended without an answer' };
  } finally {
    for (const { stream } of [errors, sync]) stream.destroy();
  }
}

/**
 * Changes a running container's limits (LinuxResources of the runtime-spec). Throws FairleadError with crun's message.
 */
export async function updateContainer(
  paths: RuntimePaths,
  { id, bundle }: RunningContainer,
  resources: object,
): Promise<void> {
  if (Object.keys(resources).length === 0) return;
  const file = join(bundle, 'resources.json');
  writeFileSync(file, JSON.stringify(resources), { mode: 0o600 });
  const { code, stderr } = await runCommand(paths.program, [
    ...crunArgs(paths),
    'update',
    '--resources',
    file,
    id,
  ]);
  if (code !== 0) throw runtimeError('update', id, stderr);
}

/**
 * Removes a container, running or not, from the runtime's state. `group`: its control group; null: it has none. Only one that
 * may still run, or is being created, costs a process.
 */
export async function removeContainer(
  paths: RuntimePaths,
  { id, bundle }: RunningContainer,
  group: string | null,
): Promise<void> {
  const entry = join(paths.crun, id);
  const hasExitCode = readExitCode(paths, id) !== null;
  const isOver = hasExitCode || (group !== null && monitorOf(bundle) === null);
  if (isOver && (group === null || isGone(group))) rmSync(entry, { recursive: true, force: true });
  else if (existsSync(entry)) await deleteContainer(paths, id);
}

/** Removes a control group without processes and groups; returns false if it has any. */
function isGone(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return true;
    if (hasCode(error, 'EBUSY', 'ENOTEMPTY')) return false;
    throw error;
  }
}

/** Ends a container, running or not, and removes it from the runtime's state. */
async function deleteContainer(paths: RuntimePaths, id: string): Promise<void> {
  await runCommand(paths.program, [...crunArgs(paths), 'delete', '--force', id]);
}

/** Runs a command in a container to its end, or kills it after the timeout. */
export async function execInContainer(
  paths: RuntimePaths,
  container: RunningContainer,
  command: readonly string[],
  timeoutMs: number,
): Promise<CommandResult> {
  const { args, pidFile, remove } = prepareExec(paths, container, command, false);
  // A running command is not a child of crun: killing crun does not end it.
  const onTimeout = () => {
    const process = readIdentity(pidFile);
    if (process) signalProcess(process, 'SIGKILL');
  };
  try {
    return await runCommand(paths.program, args, { timeoutMs, onTimeout });
  } finally {
    remove();
  }
}

/** Returns the process of an exec; null before it has started. */
export function readIdentity(pidFile: string): ProcessIdentity | null {
  try {
    return identify(Number(readFileSync(pidFile, 'utf8')));
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
}

/** A run of a container: its name in the runtime and the folder of its config.json. */
export interface RunningContainer {
  readonly id: string;
  readonly bundle: string;
}

/**
 * Prepares the runtime's arguments for a command in a container that runs like the container's own process: user,
 * groups, variables, folder, capabilities (crun itself would use root and no variables). `tty`: with a terminal,
 * initially of this size if it is known. `logFile`: a free path for the runtime's own messages, for its option `--log`.
 * `remove` deletes the files after the command.
 */
export function prepareExec(
  paths: RuntimePaths,
  { id, bundle }: RunningContainer,
  command: readonly string[],
  tty: boolean,
  size: TerminalSize | null = null,
): { readonly args: string[]; readonly pidFile: string; readonly logFile: string; remove(): void } {
  const config = JSON.parse(readFileSync(join(bundle, 'config.json'), 'utf8')) as {
    process: { env: string[] };
  };
  const { env } = config.process;
  const term = tty && !env.some((variable) => variable.startsWith('TERM=')) ? ['TERM=xterm'] : [];
  const process = {
    ...config.process,
    args: command,
    terminal: tty,
    ...(tty && size ? { consoleSize: size } : {}),
    env: [...env, ...term],
  };
  const files = newExecFiles(paths.stateDir);
  writeFileSync(files.process, JSON.stringify(process), { mode: 0o600 });
  return {
    args: [...crunArgs(paths), 'exec', '--process', files.process, '--pid-file', files.pid, id],
    pidFile: files.pid,
    logFile: files.log,
    remove: () => removeExecFiles(files),
  };
}

/** Returns the exit code of a container, or null while it runs. */
export function readExitCode(paths: RuntimePaths, id: string): number | null {
  try {
    const text = readFileSync(join(paths.exits, id), 'utf8').trim();
    return text === '' ? null : Number(text);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
}

function runtimeError(what: string, id: string, message: string): KubeletError {
  const text = message.trim().replace(/\n/g, '; ') || 'no reason given';
  return new KubeletError('RunContainerError', `failed to ${what} container: ${text}`, {
    op: `${what} container`,
    object: id,
  });
}
