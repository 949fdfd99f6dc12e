import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { listenOnLoopback } from '../../src/cluster/loopback-listeners.ts';
import { findProcesses } from '../../src/cluster/processes.ts';
import type { ClusterState } from '../../src/cluster/state.ts';
import { CONTROL_PLANE, type Supervision } from '../../src/cluster/supervision.ts';
import { signalProcess } from '../../src/kernel/process-identity.ts';
import type { Pod } from '../../src/kube/types.ts';
import { hasCode } from '../../src/lib/errors.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { type Connection, type Counts, createRequester, type Load } from './requester.ts';

export type { Connection, Counts, Load };

const ROOT = resolve(import.meta.dirname, '..', '..');
export const LAUNCHER = join(ROOT, 'fairlead');
export const HELLO = join(ROOT, 'examples', 'hello.yaml');

export interface Result {
  readonly status: number;
  readonly out: string;
  readonly error: string;
}

export interface RunningPod {
  readonly name: string;
  readonly node: string;
  readonly ips: readonly string[];
}

/** A cluster as a user has it: created by the launcher, controlled by its commands and by kubectl. */
export interface Cluster {
  readonly name: string;
  readonly stateRoot: string;
  readonly kubeconfig: string;
  /** Returns the plan of `up`, with the processes that run now. */
  state(): ClusterState;
  supervision(): Supervision;
  /** Ends the supervisor and its standby, so that killed processes stay dead until the next `up`. */
  stopSupervisor(): Promise<void>;
  fairlead(...args: readonly string[]): Promise<Result>;
  kubectl(...args: readonly string[]): Promise<Result>;
  kubectlWith(
    options: { readonly input?: string; readonly env?: Record<string, string> },
    ...args: readonly string[]
  ): Promise<Result>;
  /** Returns kubectl's output; throws if it fails. */
  ask(...args: readonly string[]): Promise<string>;
  apply(yaml: string): Promise<string>;
  /** Returns the pods with a label that are not terminating. */
  pods(selector: string): Promise<RunningPod[]>;
  /**
   * Requests `url` from a place ("client", "node/node-1", "outside"), each time on a new connection, with options of
   * `fairlead request` (requester.ts).
   */
  request(place: string, url: string, ...options: readonly string[]): Promise<Counts>;
  /** Keeps one connection open and sends requests over it repeatedly. */
  connect(place: string, host: string, port: number): Connection;
  /** Works like `request`, without end. */
  load(place: string, url: string, ...options: readonly string[]): Load;
  down(): Promise<void>;
}

/** Returns a unique name for a cluster, and a separate folder for its state. */
export function reserveCluster(): { readonly name: string; readonly stateRoot: string } {
  const name = `t${randomBytes(3).toString('hex')}`;
  return { name, stateRoot: mkdtempSync(join(tmpdir(), 'flt-state-')) };
}

/** Returns a port that is free on this machine's loopback. */
export function freeLocalPort(): number {
  const { port, descriptors } = listenOnLoopback(0);
  for (const fd of descriptors) closeSync(fd);
  return port;
}

/** The commands that remove namespaces, with the processes that tests have in them. */
const ENDS_PLACES: readonly string[] = ['down', 'stop'];

/** How long a command may take, such as a check of all flows beside other tests. */
const COMMAND_MS = 600_000;

/** The least requests of a load: not all that the machine can carry. */
const LOAD = { '--count': '300', '--concurrency': '4', '--rate': '100' };

/** Runs ./fairlead with a state folder for this test. */
export function runFairlead(
  stateRoot: string,
  args: readonly string[],
  options: { readonly input?: string; readonly env?: Record<string, string> } = {},
): Promise<Result> {
  return run(LAUNCHER, args, { FAIRLEAD_STATE: stateRoot, ...options.env }, options.input);
}

export function spawnFairlead(stateRoot: string, args: readonly string[]): ChildProcess {
  return spawn(LAUNCHER, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, FAIRLEAD_STATE: stateRoot },
  });
}

/** The folder of the real control plane that clusters of packet tests have; null: they have the embedded one. */
export const REAL_CONTROL_PLANE = process.env['FAIRLEAD_CONTROL_PLANE'] || null;

/**
 * Waits for two more answers on a connection: at least one of the requests was sent after the call. Rejects if the connection
 * broke.
 */
export async function moreAnswers(connection: Connection): Promise<void> {
  const known = connection.answered();
  await eventually(
    () => connection.answered(),
    (answered) => answered >= known + 2,
  );
}

/**
 * Starts a cluster with these options of `up`; throws with the output if that fails. With the environment variable
 * FAIRLEAD_CONTROL_PLANE its control plane is the real one from this folder.
 */
export async function startCluster(
  args: readonly string[],
  reserved = reserveCluster(),
  kubectlProgram = 'kubectl',
): Promise<Cluster> {
  const { name, stateRoot } = reserved;
  const fairlead = (...words: readonly string[]) => runFairlead(stateRoot, words);
  const real =
    REAL_CONTROL_PLANE && !args.includes('--control-plane') ? ['--control-plane', REAL_CONTROL_PLANE] : [];
  const up = await fairlead('up', '--detach', '--name', name, ...real, ...args);
  if (up.status !== 0) {
    await fairlead('down', '--name', name);
    // Other clusters may share the folder.
    const others = existsSync(stateRoot) ? readdirSync(stateRoot).filter((entry) => entry !== name) : [];
    if (others.length === 0) rmSync(stateRoot, { recursive: true, force: true });
    throw new Error(`up failed:\n${up.error}`);
  }
  const kubeconfig = join(stateRoot, name, 'kubeconfig');
  const kubectl = (...words: readonly string[]) => run(kubectlProgram, words, { KUBECONFIG: kubeconfig });
  const ask = async (...words: readonly string[]) => {
    const { status, out, error } = await kubectl(...words);
    if (status !== 0) throw new Error(`kubectl ${words.join(' ')}: ${error}`);
    return out;
  };
  const requester = createRequester(name, stateRoot);
  return {
    name,
    stateRoot,
    kubeconfig,
    state: () => readState(stateRoot, name),
    supervision: () => readProcesses(stateRoot, name),
    stopSupervisor: () => stopSupervisor(name),
    async fairlead(command = '', ...words) {
      if (ENDS_PLACES.includes(command)) await requester.close();
      return await fairlead(command, '--name', name, ...words);
    },
    kubectl,
    kubectlWith: ({ input, env }, ...words) =>
      run(kubectlProgram, words, { KUBECONFIG: kubeconfig, ...env }, input),
    ask,
    async apply(yaml) {
      const result = await run(kubectlProgram, ['apply', '-f', '-'], { KUBECONFIG: kubeconfig }, yaml);
      if (result.status !== 0) throw new Error(`kubectl apply: ${result.error}`);
      return result.out;
    },
    async pods(selector) {
      const { items } = JSON.parse(await ask('get', 'pods', '-l', selector, '-o', 'json')) as {
        items: Pod[];
      };
      return items
        .filter(({ metadata }) => !metadata?.deletionTimestamp)
        .map(({ metadata, spec, status }) => ({
          name: metadata?.name ?? '',
          node: spec?.nodeName ?? '',
          ips: (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []),
        }));
    },
    request: (place, url, ...options) => requester.request(place, url, options),
    connect: (place, host, port) => requester.connect(place, host, port),
    load(place, url, ...options) {
      const defaults = Object.entries(LOAD).filter(([option]) => !options.includes(option));
      return requester.load(place, url, [...defaults.flat(), ...options]);
    },
    async down() {
      await requester.close();
      const { status, error } = await fairlead('down', '--name', name);
      rmSync(stateRoot, { recursive: true, force: true });
      if (status !== 0) throw new Error(`down failed:\n${error}`);
    },
  };
}

function readProcesses(stateRoot: string, name: string): Supervision {
  return JSON.parse(readFileSync(join(stateRoot, name, 'processes.json'), 'utf8')) as Supervision;
}

function readState(stateRoot: string, name: string): ClusterState {
  const state = JSON.parse(readFileSync(join(stateRoot, name, 'cluster.json'), 'utf8')) as ClusterState;
  const { processes } = readProcesses(stateRoot, name);
  return {
    ...state,
    controlPlane: processes[CONTROL_PLANE]?.identity ?? null,
    nodes: state.nodes.map((node) => ({ ...node, agent: processes[node.name]?.identity ?? null })),
  };
}

function isSupervisor(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes('supervise');
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
    throw error;
  }
}

const CHECKS_WITHOUT_SUPERVISOR = 10;

async function stopSupervisor(name: string): Promise<void> {
  // Repeated until none remains: one may have been started meanwhile, and is not recognised before it has run its program.
  let empty = 0;
  await eventually(() => {
    const left = findProcesses(name, []).filter(({ pid }) => isSupervisor(pid));
    for (const identity of left) signalProcess(identity, 'SIGTERM');
    empty = left.length === 0 ? empty + 1 : 0;
    return empty >= CHECKS_WITHOUT_SUPERVISOR;
  });
}

function run(
  file: string,
  args: readonly string[],
  env: Record<string, string>,
  input?: string,
): Promise<Result> {
  return new Promise((resolve) => {
    const child = execFile(
      file,
      [...args],
      { env: { ...process.env, ...env }, maxBuffer: 1 << 26, timeout: COMMAND_MS, killSignal: 'SIGKILL' },
      (error, out, text) => {
        const status = error ? (typeof error.code === 'number' ? error.code : 128) : 0;
        resolve({
          status,
          out,
          error: error && typeof error.code !== 'number' ? `${error.message}\n${text}` : text,
        });
      },
    );
    // A command that reads no input may have ended already; its exit status is judged.
    child.stdin?.on('error', () => {});
    child.stdin?.end(input ?? '');
  });
}
