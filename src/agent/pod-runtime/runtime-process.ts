import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import { controlGroupRoot } from '../../kernel/control-group.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../../kernel/process-identity.ts';
import { ended, NEW_RECORD, type ProcessRecord } from '../../kernel/process-record.ts';
import { createSupervisor, type StartedProcess } from '../../kernel/process-supervisor.ts';
import { type Clock, pause } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { PodsConfiguration } from '../agent-configuration.ts';
import { isClosed, type Link, openLink } from './link.ts';
import { type MachinePulls, machinePullsVariable, withoutMachinePulls } from './machine-pulls.ts';
import { boundMemory, memoryKills, ownMemory } from './memory-bound.ts';
import {
  type AgentNotices,
  LINK_VERSION,
  type RuntimeConfiguration,
  type RuntimeNotices,
  readQuestion,
} from './messages.ts';
import { type RuntimeProblems, runtimeProblems } from './runtime-health.ts';
import { readRuntimeRecord, runningRuntime, writeRuntimeRecord } from './runtime-record.ts';
import { answerRuntime, notifyRuntime, openNotice, type RuntimeNeeds } from './serve-runtime.ts';

/** How the pod runtime of a node is started: as a child of the agent, with the socket to it as descriptor 3. */
export interface RuntimeProgram {
  readonly file: string;
  /** `heapMiB`: the largest size of its old objects. */
  readonly words: (heapMiB: number) => readonly string[];
}

/** The descriptor of the link in the runtime's process. */
export const LINK_DESCRIPTOR = 3;

export interface RuntimeProcessOptions {
  readonly program: RuntimeProgram;
  /** How a local cluster's nodes pull images; absent or null: through the node's network. */
  readonly pulls?: MachinePulls | null;
  readonly stateDir: string;
  readonly pods: Pick<PodsConfiguration, 'cgroupParent' | 'runtime'>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The pod runtime of a node: a process of its own, which the agent starts again whenever it ends. */
export interface RuntimeProcess {
  /** Lets the runtime connect to the API server: its credentials exist. */
  configure(start: Omit<AgentNotices['start'], 'version'>): void;
  /** Lets it run pods. Resolves when it serves all of the node's. */
  serve(needs: RuntimeNeeds): Promise<void>;
  problems(): RuntimeProblems;
  /** Calls the listener when the problems have changed. */
  onProblems(listener: (problems: RuntimeProblems) => void): void;
  /** Calls the listener with the reason when a run has ended. */
  onEnd(listener: (reason: string) => void): void;
  /** Ends it; the pods keep running. */
  close(): Promise<void>;
}

const NAME = 'pod-runtime';
const TICK_MS = 1000;
const PING_MS = 5000;
/** The first answer comes after the program has been loaded, on a machine that may be busy. */
const FIRST_ANSWER_FACTOR = 4;
/** How long a run may take to end after it was asked to, or after its link has ended. */
const END_MS = 3000;
const MIB = 1024 * 1024;
/** The part of the memory that is for old objects; buffers, code and young objects share the rest. */
const HEAP_PART = 0.5;

/** One run of the process. */
interface Run {
  readonly identity: ProcessIdentity;
  readonly link: Link;
  readonly exited: Promise<unknown>;
  isReady: boolean;
  hasAnswered: boolean;
  /** Ticks since the question that has no answer yet; null: none is open. */
  waitedMs: number | null;
  sincePingMs: number;
  /** Why the agent has ended it; null: it has not. */
  cause: string | null;
  group: string | null;
}

/**
 * Starts the pod runtime of a node at once, so that it is loaded while the agent starts. A run of an earlier agent, which
 * outlived it, is killed first. A run that does not answer, or uses too much memory, is killed; whenever one has ended, the next
 * starts after a pause (see process-record.ts) and adopts the pods.
 */
export function startRuntimeProcess(options: RuntimeProcessOptions): RuntimeProcess {
  const { program, stateDir, pods, clock, logger } = options;
  const { memoryMiB, answerMs } = pods.runtime;
  const tickMs = Math.min(TICK_MS, answerMs / 4);
  const pingMs = Math.min(PING_MS, answerMs / 2);
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const problemListeners = new Set<(problems: RuntimeProblems) => void>();
  const endListeners = new Set<(reason: string) => void>();
  const ready = Promise.withResolvers<void>();
  let start: AgentNotices['start'] | null = null;
  let needs: RuntimeNeeds | null = null;
  let serving: RuntimeNeeds['serving'] | null = null;
  let run: Run | null = null;
  let record = withoutPredecessor(readRuntimeRecord(stateDir), clock);
  let silentMs = 0;
  let shown: RuntimeProblems = { now: null, lasting: null };
  let unboundReason: string | null = null;
  let isKept = true;

  const state = () => ({
    ...{ record, silentMs, answerMs },
    isReady: run?.isReady === true,
    wasLasting: shown.lasting !== null,
  });
  const look = () => {
    const problems = runtimeProblems(state(), clock.now());
    if (problems.now === shown.now && problems.lasting === shown.lasting) return;
    shown = problems;
    for (const listener of problemListeners) listener(problems);
  };
  const kill = (one: Run, reason: string) => {
    one.cause ??= reason;
    signalProcess(one.identity, 'SIGKILL');
  };
  const begin = ({ link }: Run) => {
    if (start) notifyRuntime(link, 'start', start);
    if (start && needs && serving) notifyRuntime(link, 'open', openNotice(needs, serving));
  };
  const ping = async (one: Run) => {
    one.sincePingMs = 0;
    one.waitedMs = 0;
    try {
      await one.link.ask('ping', needs?.surroundings() ?? { nameServers: [], apiServers: [] }, null);
      one.waitedMs = null;
      one.hasAnswered = true;
      silentMs = 0;
    } catch (error) {
      logger.debug({}, `the pod runtime did not answer: ${messageOf(error)}`);
    }
  };
  const startRun = (): StartedProcess => {
    const child = spawnRuntime(options);
    const ending = Promise.withResolvers<string>();
    child.once('error', (error) => ending.resolve(messageOf(error)));
    child.once('exit', (code, signal) => ending.resolve(exitReason(code, signal)));
    const identity = child.pid === undefined ? null : identify(child.pid);
    if (!identity)
      throw new FairleadError(`failed to start ${program.file}`, { op: `start ${NAME}`, code: 'EIO' });
    const link = openLink({
      socket: socketOf(child),
      answer: async (name, body) => await answerRuntime(needs, readQuestion(name, body)),
      notice(name) {
        checkNotice(name);
        one.isReady = true;
        ready.resolve();
        look();
      },
      clock,
      logger,
    });
    const one = newRun(identity, link, ending.promise);
    run = one;
    void boundRun(one, pods.cgroupParent, memoryMiB, (reason) => {
      if (reason !== unboundReason)
        logger.warn({}, `the kernel does not bound the memory of the pod runtime, the agent does: ${reason}`);
      unboundReason = reason;
    });
    void link.ended.then(async (reason) => {
      if (!isClosed(reason)) one.cause ??= `its link to the agent has failed: ${reason}`;
      if (!(await endsWithin(one.exited, END_MS, clock)))
        kill(one, 'killed: it had closed its link to the agent');
    });
    begin(one);
    void ping(one);
    return {
      identity,
      onExit(call) {
        void ending.promise.then((reason) => {
          if (run === one) run = null;
          link.close();
          const known = causeOfEnd(one, reason, memoryMiB);
          call(known);
          for (const listener of endListeners) listener(known);
        });
      },
    };
  };
  const check = (one: Run) => {
    const used = ownMemory(one.identity.pid);
    if (used > memoryMiB * MIB) {
      kill(one, `killed: it used ${Math.ceil(used / MIB)} MiB of memory, more than ${memoryMiB}`);
      return;
    }
    one.sincePingMs += tickMs;
    if (one.waitedMs === null) {
      if (one.sincePingMs >= pingMs) void ping(one);
      return;
    }
    // Counted in ticks: time in which this process did not run does not count.
    one.waitedMs += tickMs;
    if (one.waitedMs >= answerMs * (one.hasAnswered ? 1 : FIRST_ANSWER_FACTOR))
      kill(one, `killed: it did not answer for ${Math.round(one.waitedMs / 1000)} s`);
  };
  /** Writes the record; a full disk is tried again with each tick. */
  const keep = () => {
    try {
      writeRuntimeRecord(stateDir, record);
      isKept = true;
    } catch (error) {
      if (isKept) logger.warn({}, `failed to record the pod runtime: ${messageOf(error)}`);
      isKept = false;
    }
  };
  const tick = () => {
    cancelTick = clock.after(tickMs, tick);
    if (!isKept) keep();
    silentMs += tickMs;
    if (run) check(run);
    look();
  };
  let cancelTick = clock.after(tickMs, tick);

  const supervisor = createSupervisor({
    wanted: () => [NAME],
    // A process that was killed may take a moment to end.
    mayStart: () => runningRuntime(stateDir) === null,
    start: startRun,
    isRunning,
    records: { [NAME]: record },
    save({ [NAME]: changed = NEW_RECORD }) {
      record = changed;
      look();
      keep();
    },
    clock,
    logger,
  });
  supervisor.reconcile();

  return {
    configure(given) {
      start = { ...given, version: LINK_VERSION };
      if (run) begin(run);
    },
    serve(given) {
      needs = given;
      serving = given.serving;
      given.serving.onChange?.((changed) => {
        serving = { ...given.serving, ...serving, ...changed };
        if (run) notifyRuntime(run.link, 'serving', changed);
      });
      given.allocatable.onChange(() => {
        if (run) notifyRuntime(run.link, 'allocatable', given.allocatable.current());
      });
      if (run && start) notifyRuntime(run.link, 'open', openNotice(given, serving));
      return ready.promise;
    },
    problems: () => shown,
    onProblems: (listener) => void problemListeners.add(listener),
    onEnd: (listener) => void endListeners.add(listener),
    async close() {
      cancelTick();
      supervisor.close();
      const last = run;
      if (!last) return;
      signalProcess(last.identity, 'SIGTERM');
      last.link.close();
      if (!(await endsWithin(last.exited, END_MS, clock))) signalProcess(last.identity, 'SIGKILL');
      await last.exited;
    },
  };
}

/** Returns the configuration for the runtime. */
export function runtimeConfiguration(
  configuration: Omit<RuntimeConfiguration, 'clusterDns'>,
  clusterDns: readonly string[],
): RuntimeConfiguration {
  const { nodeName, kubeconfig, server, servers, clusterDomain, stateDir, pods } = configuration;
  return { nodeName, kubeconfig, server, servers, clusterDomain, stateDir, pods, clusterDns };
}

/**
 * Kills the run of an earlier agent if there still is one. It ends with its agent, unless it is stuck; two runs must not work on
 * the same pods. The new agent may have other bounds: its first start does not wait for failures of the earlier one.
 */
function withoutPredecessor(record: ProcessRecord, clock: Clock): ProcessRecord {
  const { identity } = record;
  if (identity === null) return { ...record, failures: 0, startAt: 0 };
  signalProcess(identity, 'SIGKILL');
  return { ...ended(record, 'its agent has ended', clock.now()), failures: 0, startAt: 0 };
}

async function endsWithin(exited: Promise<unknown>, ms: number, clock: Clock): Promise<boolean> {
  const waiting = new AbortController();
  const isOver = await Promise.race([
    exited.then(() => true),
    pause(clock, ms, waiting.signal).then(() => false),
  ]);
  waiting.abort();
  return isOver;
}

function socketOf(child: ChildProcess): Duplex {
  const socket = child.stdio[LINK_DESCRIPTOR];
  if (socket && 'write' in socket && 'read' in socket) return socket as Duplex;
  throw new FairleadError('the process has no link', { op: `start ${NAME}`, code: 'EIO' });
}

/** The sockets of a node's name servers are the agent's; the network for pulls has another descriptor there. */
function childEnvironment(environment: NodeJS.ProcessEnv, pulls: MachinePulls | null): NodeJS.ProcessEnv {
  const { LISTEN_FDS: _, LISTEN_PID: __, LISTEN_FDNAMES: ___, ...others } = withoutMachinePulls(environment);
  if (pulls === null) return others;
  const network = pulls.network === null ? null : LINK_DESCRIPTOR + 1;
  return { ...others, ...machinePullsVariable({ ...pulls, network }) };
}

const exitReason = (code: number | null, signal: NodeJS.Signals | null) =>
  signal === 'SIGABRT'
    ? 'aborted, as Node.js does when its heap is full'
    : signal
      ? `killed by ${signal}`
      : `exited with status ${code}`;

/** Starts the program; a descriptor after its standard ones is the link. */
function spawnRuntime({ program, pulls = null, pods }: RuntimeProcessOptions): ChildProcess {
  const network = pulls?.network ?? null;
  const heapMiB = Math.max(1, Math.floor(pods.runtime.memoryMiB * HEAP_PART));
  return spawn(program.file, [...program.words(heapMiB)], {
    cwd: '/',
    stdio: ['ignore', 'inherit', 'inherit', 'pipe', ...(network === null ? [] : [network])],
    env: childEnvironment(process.env, pulls),
  });
}

/** Throws FairleadError for a notice that a runtime does not send. */
function checkNotice(name: string): void {
  if (name !== ('ready' satisfies keyof RuntimeNotices))
    throw new FairleadError(`notice of an unknown name ${JSON.stringify(name).slice(0, 40)}`, {
      op: 'read the link',
      code: 'bad-request',
    });
}

/** Puts a run into a control group with the limit, where there is one. `failed`: called with the reason if that fails. */
async function boundRun(
  run: Run,
  parent: string,
  memoryMiB: number,
  failed: (reason: string) => void,
): Promise<void> {
  const root = controlGroupRoot();
  if (root === null) return;
  try {
    run.group = await boundMemory(root, parent, run.identity.pid, memoryMiB * MIB);
  } catch (error) {
    failed(messageOf(error));
  }
}

const newRun = (identity: ProcessIdentity, link: Link, exited: Promise<unknown>): Run => ({
  ...{ identity, link, exited, isReady: false, hasAnswered: false },
  ...{ waitedMs: null, sincePingMs: 0, cause: null, group: null },
});

/** Returns why a run has ended. `reason`: how its process exited. */
function causeOfEnd({ cause, group }: Run, reason: string, memoryMiB: number): string {
  if (cause !== null) return cause;
  const isOverLimit = group !== null && memoryKills(group) > 0;
  return isOverLimit ? `killed by the kernel: it used more than ${memoryMiB} MiB` : reason;
}
