import type { Socket } from 'node:net';
import { rotateLogs } from '../cluster/log-rotation.ts';
import { connectToRole, type HeldRole, takeRole } from '../cluster/name-lock.ts';
import { identify, isRunning, type ProcessIdentity } from '../cluster/process-identity.ts';
import { startProcess, startSupervisor } from '../cluster/processes.ts';
import {
  type ClusterState,
  clusterPaths,
  readCluster,
  readSupervision,
  writeSupervision,
} from '../cluster/state.ts';
import { CONTROL_PLANE, type ProcessRecord, PUBLISHED_PORTS } from '../cluster/supervision.ts';
import { createSupervisor } from '../cluster/supervisor.ts';
import { pause, systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text } from './options.ts';

/** Delayed, since the start of the cluster needs the processor first. */
const STANDBY_AFTER_MS = 2000;
const LOOK_FOR_STATE_MS = 10;
const ROTATE_LOGS_MS = 10_000;

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
    while (!signal.aborted && readCluster(name) !== null) {
      const standbys = createStandbys();
      const role = await takeRole('supervisor', name, 'fairlead supervise', standbys.onMessage);
      if (!role) {
        await waitForEnd(name, signal);
        continue;
      }
      await supervise(name, role, standbys, logger, signal);
      break;
    }
    return 0;
  },
});

/** Supervises until the signal aborts, or the cluster is removed. */
async function supervise(
  name: string,
  role: HeldRole,
  standbys: Standbys,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  logger.info({ pid: process.pid }, 'supervising');
  let state = await createdCluster(name, signal);
  let records: Readonly<Record<string, ProcessRecord>> = readSupervision(name).processes;
  const self = identify(process.pid);
  const save = () => {
    if (state) writeSupervision(name, { supervisor: self, standby: standbys.current(), processes: records });
  };
  const supervisor = createSupervisor({
    wanted() {
      state = readCluster(name) ?? null;
      if (!state) return Object.keys(records);
      return [
        CONTROL_PLANE,
        ...(state.publishedPorts.length > 0 ? [PUBLISHED_PORTS] : []),
        ...state.nodes.filter(({ isLeaving }) => !isLeaving).map((node) => node.name),
      ];
    },
    start(process) {
      const current = readCluster(name);
      if (!current)
        throw new FairleadError('the cluster is being removed', { op: 'supervise', code: 'no-cluster' });
      return startProcess(current, process);
    },
    isRunning,
    records,
    save(changed) {
      records = changed;
      save();
    },
    clock: systemClock,
    logger,
  });
  standbys.onChange(save);
  standbys.onHurry(() => supervisor.hurry());
  if (state) supervisor.look();
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
    if (standbys.current() === null && systemClock.now() - started > STANDBY_AFTER_MS) standbys.start(state);
  }
  cancelRotation();
  supervisor.close();
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
    await pause(systemClock, LOOK_FOR_STATE_MS, signal);
  }
  return null;
}

interface Standbys {
  onMessage(message: unknown, socket: Socket): void;
  current(): ProcessIdentity | null;
  onChange(call: () => void): void;
  onHurry(call: () => void): void;
  start(state: ClusterState): void;
}

/**
 * Manages the processes connected to this supervisor: a standby, and `up` when it requests an immediate
 * restart.
 */
function createStandbys(): Standbys {
  const identities = new Set<ProcessIdentity>();
  let changed = () => {};
  let hurry = () => {};
  let startedAt = Number.NEGATIVE_INFINITY;
  return {
    onMessage(message, socket) {
      const { standby, hurry: isHurry } = message as { standby?: ProcessIdentity; hurry?: boolean };
      if (isHurry === true) hurry();
      if (!standby) {
        socket.end('done\n');
        return;
      }
      identities.add(standby);
      changed();
      socket.on('close', () => {
        identities.delete(standby);
        changed();
      });
    },
    current: () => identities.values().next().value ?? null,
    onChange(call) {
      changed = call;
    },
    onHurry(call) {
      hurry = call;
    },
    start(state) {
      // A standby that was just started has not connected yet.
      if (systemClock.now() - startedAt < 5000) return;
      startedAt = systemClock.now();
      startSupervisor(state);
    },
  };
}

/** Waits, on standby, until the supervisor has ended. */
async function waitForEnd(name: string, signal: AbortSignal): Promise<void> {
  const connection = await connectToRole('supervisor', name);
  if (!connection) return;
  const { socket } = connection;
  socket.write(`${JSON.stringify({ standby: identify(process.pid) })}\n`);
  await new Promise<void>((resolve) => {
    socket.once('close', () => resolve());
    signal.addEventListener('abort', () => socket.destroy());
    if (signal.aborted) socket.destroy();
  });
}
