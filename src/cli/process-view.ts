import { API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER } from '../cluster/control-plane-programs.ts';
import { processNames } from '../cluster/processes.ts';
import type { ClusterState } from '../cluster/state.ts';
import {
  CONTROL_PLANE,
  EGRESS,
  PUBLISHED_PORTS,
  podRuntimeName,
  type Supervision,
} from '../cluster/supervision.ts';
import type { isRunning } from '../kernel/process-identity.ts';
import { NEW_RECORD } from '../kernel/process-record.ts';
import { type Problem, problem } from './problem.ts';
import { formatTable } from './table.ts';

/** One process of a cluster in the output of `status`. */
export interface ProcessView {
  readonly name: string;
  readonly pid: number | null;
  /** ISO time of the last start; null: never, or not recorded. */
  readonly since: string | null;
  readonly restarts: number;
  /** Reason and time (ISO) of its last exit. */
  readonly lastExit: { readonly at: string; readonly reason: string } | null;
  /** Seconds since the last start while it runs, otherwise until the next one; null: unknown. */
  readonly seconds: number | null;
}

const SUPERVISOR = 'supervisor';

/** Returns the supervisor and the processes that it keeps running. */
export function viewsOf(
  state: ClusterState,
  { supervisor, processes }: Supervision,
  now: number,
  runs: typeof isRunning,
): ProcessView[] {
  return [
    {
      name: SUPERVISOR,
      pid: runs(supervisor) ? supervisor.pid : null,
      since: null,
      restarts: 0,
      lastExit: null,
      seconds: null,
    },
    ...shownNames(state).map((name): ProcessView => {
      const { identity, startedAt, restarts, lastExit, startAt } = processes[name] ?? NEW_RECORD;
      const pid = runs(identity) ? identity.pid : null;
      const from = pid === null ? startAt : startedAt;
      return {
        name,
        pid,
        since: startedAt === null ? null : new Date(startedAt).toISOString(),
        restarts,
        lastExit: lastExit && { at: new Date(lastExit.at).toISOString(), reason: lastExit.reason },
        seconds: from ? Math.round(Math.abs(now - from) / 1000) : null,
      };
    }),
  ];
}

/** Returns the names of the supervised processes, each agent's pod runtime after it. */
function shownNames(state: ClusterState): readonly string[] {
  const isNode = new Set(state.nodes.map(({ name }) => name));
  return processNames(state).flatMap((name) => (isNode.has(name) ? [name, podRuntimeName(name)] : [name]));
}

/** The functions that do not work while a program of a real control plane is not running. */
const PROGRAM_EFFECTS: Readonly<Record<string, string>> = {
  [ETCD]: 'objects can be neither read nor changed',
  [API_SERVER]: 'objects can be neither read nor changed',
  [CONTROLLER_MANAGER]: 'Services do not follow their pods, and workloads are not controlled',
  [SCHEDULER]: 'new pods stay Pending',
};

/** Describes the processes that are not running, with the effect and the fix. */
export function processProblems(views: readonly ProcessView[], state: ClusterState): Problem[] {
  const isSupervised = views.some(({ name, pid }) => name === SUPERVISOR && pid !== null);
  const fix = `fairlead up --detach --name ${state.name}`;
  const stopped = new Set(views.filter(({ pid }) => pid === null).map(({ name }) => name));
  const nodeOf = new Map(state.nodes.map(({ name }) => [podRuntimeName(name), name]));
  return (
    views
      // Its agent starts a pod runtime.
      .filter(({ name }) => stopped.has(name) && !stopped.has(nodeOf.get(name) ?? ''))
      .map((view) => problem('process-stopped', `process ${view.name}`, textOf(view)))
  );

  function textOf(view: ProcessView): string {
    if (view.name === SUPERVISOR)
      return `the supervisor is not running: no process is restarted; start it: ${fix}`;
    const why = view.lastExit ? ` (${view.lastExit.reason})` : '';
    const next = isSupervised ? `restarts in ${view.seconds ?? 0} s` : `start it: ${fix}`;
    if (view.name === CONTROL_PLANE) return `the control plane is not running${why}; ${next}`;
    const program = PROGRAM_EFFECTS[view.name];
    if (program !== undefined) return `${view.name} is not running${why}: ${program}; ${next}`;
    if (view.name === PUBLISHED_PORTS) return `published ports are closed${why}; ${next}`;
    if (view.name === EGRESS)
      return `changes of the machine's network may cut pods off from external networks${why}; ${next}`;
    const node = nodeOf.get(view.name);
    if (node !== undefined)
      return `${node}: the pod runtime is not running${why}: its pods run on, and none is started, probed or ended; restarts in ${view.seconds ?? 0} s`;
    const effect =
      state.mode === 'userspace' ? 'new connections to Services fail' : 'connections to Services continue';
    return `${view.name}: the agent is not running${why}: ${effect}, names are not resolved; ${next}`;
  }
}

/** Renders the processes as a table for a terminal of this width; null: not a terminal. */
export function processTable(views: readonly ProcessView[], columns: number | null): string {
  const rows = views.map(({ name, pid, restarts, lastExit, seconds }) => [
    name,
    pid === null ? 'Stopped' : 'Running',
    pid === null || seconds === null ? '-' : duration(seconds),
    name === SUPERVISOR ? '-' : String(restarts),
    lastExit ? `${lastExit.reason} at ${lastExit.at.slice(0, 19)}Z` : '-',
  ]);
  const heading = ['PROCESS', 'STATUS', 'FOR', 'RESTARTS', 'LAST EXIT'];
  return formatTable([heading, ...rows], columns, ['FOR', 'RESTARTS']);
}

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
}
