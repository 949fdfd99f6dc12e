import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { createHeldSockets } from '../cluster/held-sockets.ts';
import { rotateLogs } from '../cluster/log-rotation.ts';
import { connectToRole, type HeldRole, takeRole } from '../cluster/name-lock.ts';
import { mayStart, processNames, startProcess, startSupervisor } from '../cluster/processes.ts';
import { createHeldListeners, type HeldListeners } from '../cluster/rootless/held-listeners.ts';
import type { PassedListener } from '../cluster/rootless/passed-listeners.ts';
import { isRootless } from '../cluster/rootless/rootless.ts';
import {
  type ClusterState,
  clusterPaths,
  readCluster,
  readSupervision,
  writeSupervision,
} from '../cluster/state.ts';
import { CONTROL_PLANE, type Supervision } from '../cluster/supervision.ts';
import { createSupervisionRecord, type RecordState } from '../cluster/supervision-record.ts';
import { identify, isRunning, type ProcessIdentity } from '../kernel/process-identity.ts';
import { createSupervisor } from '../kernel/process-supervisor.ts';
import { pause, systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text } from './options.ts';

/** Delayed, since the start of the cluster needs the processor first. */
const STANDBY_AFTER_MS = 2000;
const POLL_STATE_MS = 10;
const ROTATE_LOGS_MS = 10_000;
/** How often a standby looks for sockets that were added. */
const FOLLOW_MS = 1000;

export const command = defineCommand({
  name: 'supervise',
  summary: '',
  description: [
    'Keeps the processes of a local cluster running; started by "fairlead up". A second supervisor, started by the first, is its standby: it takes over when the first exits, and starts a new standby.',
  ],
  arguments: [],
  options: { name: text('NAME', 'the cluster', { fallback: 'default' }) },
  async run({ options: { name } }) {
    const logger = createLogger('supervisor');
    exitOnUnhandled(logger);
    const signal = shutdownSignal();
    const listeners = createHeldListeners(name);
    let unwritten: Supervision | null = null;
    while (!signal.aborted && readCluster(name) !== null) {
      const standbys = createStandbys(listeners);
      const role = await takeRole('supervisor', name, 'fairlead supervise', standbys.onMessage);
      if (!role) {
        const stop = isRootless() ? repeat(FOLLOW_MS, () => listeners.follow()) : () => {};
        unwritten = await waitForEnd(name, unwritten, signal).finally(stop);
        continue;
      }
      await supervise(name, role, unwritten ?? readSupervision(name), standbys, listeners, logger, signal);
      break;
    }
    return 0;
  },
});

/** Supervises until the signal aborts, or the cluster is removed. `inherited`: the record of an earlier supervisor. */
async function supervise(
  name: string,
  role: HeldRole,
  inherited: Supervision,
  standbys: Standbys,
  listeners: HeldListeners,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  logger.info({ pid: process.pid }, 'supervising');
  let state = await createdCluster(name, signal);
  const self = identify(process.pid);
  const record = createSupervisionRecord({
    initial: { supervisor: self, standby: standbys.current(), processes: inherited.processes },
    write(supervision) {
      if (state) writeSupervision(name, supervision);
    },
    onChange: (changed) => standbys.send(changed),
    logger,
  });
  const put = (changes: Partial<Supervision>) =>
    record.put({ ...record.current().supervision, standby: standbys.current(), ...changes });
  const held = createHeldSockets(systemClock, logger);
  listeners.record();
  const supervisor = createSupervisor({
    wanted() {
      state = readCluster(name) ?? null;
      if (!state) return Object.keys(record.current().supervision.processes);
      const leaving = new Set(state.nodes.flatMap((node) => (node.isLeaving ? [node.name] : [])));
      return processNames(state).filter((process) => !leaving.has(process));
    },
    mayStart(process) {
      const { identity = null } = record.current().supervision.processes[CONTROL_PLANE] ?? {};
      return state === null || mayStart(state, process, identity);
    },
    start(process) {
      const current = readCluster(name);
      if (!current)
        throw new FairleadError('the cluster is being removed', { op: 'supervise', code: 'no-cluster' });
      listeners.record();
      return startProcess(current, process, held, listeners);
    },
    isRunning,
    records: inherited.processes,
    save(processes) {
      held.follow(processes);
      put({ processes });
    },
    clock: systemClock,
    logger,
  });
  standbys.serve({
    changed: () => put({}),
    add(pid, added) {
      listeners.add(pid, added);
      listeners.record();
    },
    hurry: () => supervisor.hurry(),
    record: () => record.current(),
  });
  if (state) supervisor.reconcile();
  const started = systemClock.now();
  const cancelRotation = repeat(ROTATE_LOGS_MS, () => {
    try {
      rotateLogs(clusterPaths(name).logs);
    } catch (error) {
      logger.warn({ err: error }, `failed to rotate the logs: ${messageOf(error)}`);
    }
  });
  while (!signal.aborted && state) {
    await pause(systemClock, 500, signal);
    record.retry();
    listeners.record();
    if (standbys.current() === null && systemClock.now() - started > STANDBY_AFTER_MS) standbys.start(state);
  }
  cancelRotation();
  supervisor.close();
  held.close();
  role.release();
}

function repeat(ms: number, task: () => void): () => void {
  const next = (): (() => void) =>
    systemClock.after(ms, () => {
      task();
      cancel = next();
    });
  let cancel = next();
  return () => cancel();
}

/**
 * Waits until `up` has created the parts that the processes need; null: `up` has ended before, or the
 * cluster was removed.
 */
async function createdCluster(name: string, signal: AbortSignal): Promise<ClusterState | null> {
  while (!signal.aborted) {
    const state = readCluster(name);
    if (state?.isCreated !== false) return state;
    if (!isRunning(state.creator)) return null;
    await pause(systemClock, POLL_STATE_MS, signal);
  }
  return null;
}

interface Standbys {
  onMessage(message: unknown, socket: Socket): void;
  current(): ProcessIdentity | null;
  /** Sends a changed record to the standbys. */
  send(record: RecordState): void;
  /** Sets the functions that answer the connected processes. */
  serve(supervisor: {
    /** Called when a standby was added or ended. */
    changed(): void;
    hurry(): void;
    /** Copies sockets of a process that connects. */
    add(pid: number, listeners: readonly PassedListener[]): void;
    record(): RecordState;
  }): void;
  start(state: ClusterState): void;
}

/**
 * Manages the processes connected to this supervisor: a standby, `up` when it requests an immediate restart, and
 * `status`, which reads the record.
 */
function createStandbys(listeners: HeldListeners): Standbys {
  const connected = new Map<Socket, ProcessIdentity>();
  let supervisor: Parameters<Standbys['serve']>[0] | null = null;
  let startedAt = Number.NEGATIVE_INFINITY;
  return {
    onMessage(message, socket) {
      const {
        standby,
        hurry,
        record,
        pid,
        listeners: added = [],
      } = message as {
        pid?: number;
        listeners?: readonly PassedListener[];
        standby?: ProcessIdentity;
        hurry?: boolean;
        record?: boolean;
      };
      // Any user of the machine can connect to a supervisor in its network, but only the cluster's owner to one elsewhere.
      if (isRootless() && pid !== undefined && added.length > 0) supervisor?.add(pid, added);
      if (hurry === true) supervisor?.hurry();
      if (!standby) {
        socket.end(record === true && supervisor ? JSON.stringify(supervisor.record()) : 'done\n');
        return;
      }
      connected.set(socket, standby);
      supervisor?.changed();
      socket.on('close', () => {
        connected.delete(socket);
        supervisor?.changed();
      });
    },
    current: () => connected.values().next().value ?? null,
    send(record) {
      for (const socket of connected.keys()) socket.write(`${JSON.stringify(record)}\n`);
    },
    serve(functions) {
      supervisor = functions;
    },
    start(state) {
      // A standby that was just started has not connected yet.
      if (systemClock.now() - startedAt < 5000) return;
      startedAt = systemClock.now();
      startSupervisor(state, listeners.all());
    },
  };
}

/**
 * Waits, on standby, until the supervisor has ended. Returns its record if it could not write it, otherwise null. `earlier`:
 * what the last call returned. It remains if no other supervisor is there, since the kernel closes the connections of a
 * killed process before its role is free.
 */
async function waitForEnd(
  name: string,
  earlier: Supervision | null,
  signal: AbortSignal,
): Promise<Supervision | null> {
  const connection = await connectToRole('supervisor', name);
  if (!connection) return earlier;
  const { socket } = connection;
  let unwritten = earlier;
  createInterface({ input: socket }).on('line', (line) => {
    const { supervision, problem } = JSON.parse(line) as RecordState;
    unwritten = problem === null ? null : supervision;
  });
  socket.write(`${JSON.stringify({ standby: identify(process.pid) })}\n`);
  await new Promise<void>((resolve) => {
    socket.once('close', () => resolve());
    signal.addEventListener('abort', () => socket.destroy());
    if (signal.aborted) socket.destroy();
  });
  return unwritten;
}
