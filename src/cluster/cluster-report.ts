import { type LinkSize, readLinkSizes, readWirePort } from '../agent/link-sizes.ts';
import { readRuntimeRecord } from '../agent/pod-runtime/runtime-record.ts';
import { isRunning, type ProcessIdentity } from '../kernel/process-identity.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { nodeNetns, wireNetns } from '../network/topology.ts';
import { type EgressReport, readEgressReports, readNameProblem } from './egress.ts';
import { connectToRole } from './name-lock.ts';
import { type PortReport, readPortReports } from './published-ports.ts';
import { type ClusterState, clusterPaths, readSupervision } from './state.ts';
import { podRuntimeName, type Supervision } from './supervision.ts';
import type { RecordState } from './supervision-record.ts';

/** The state of a local cluster by its files. */
export interface ClusterReport {
  readonly state: ClusterState;
  /** With the records of the agents about their pod runtimes. */
  readonly supervision: Supervision;
  /** Why the supervisor cannot write its record of the processes; null: it can. */
  readonly recordProblem: string | null;
  /** PIDs of the recorded processes that are running. */
  readonly running: readonly number[];
  readonly ports: readonly PortReport[];
  /** The way out of each family; empty: without `up --egress`. */
  readonly egress: readonly EgressReport[];
  /** Why pods cannot resolve external names; null: no reason is known, or without `up --egress`. */
  readonly nameProblem: string | null;
  /** The devices that packets between nodes pass; absent: an older program answered. */
  readonly links?: readonly { readonly node: string; readonly links: readonly LinkSize[] }[];
}

/** Reads a cluster's report from its files and its supervisor. */
export async function readReport(state: ClusterState): Promise<ClusterReport> {
  const { supervision: own, problem } = await readRecord(state.name);
  const supervision = { ...own, processes: { ...own.processes, ...podRuntimes(state) } };
  const { supervisor, standby, processes } = supervision;
  const recorded = [supervisor, standby, ...Object.values(processes).map(({ identity }) => identity)];
  return {
    state,
    supervision,
    recordProblem: problem,
    running: recorded.filter(isRunning).map(({ pid }) => pid),
    ports: readPortReports(state),
    egress: state.egress ? (readEgressReports(state.name) ?? []) : [],
    nameProblem: state.egress ? readNameProblem(state.name) : null,
    links: readLinks(state),
  };
}

/** Reads the devices of all nodes; those of a node whose namespace is gone are left out. */
function readLinks({ name, nodes }: ClusterState): NonNullable<ClusterReport['links']> {
  return nodes.flatMap(({ name: node }) => {
    try {
      const links = readLinkSizes(nodeNetns(name, node));
      return [{ node, links: [...links, ...readWirePort(wireNetns(name), node)] }];
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return [];
      throw error;
    }
  });
}

const podRuntimes = (state: ClusterState): Supervision['processes'] =>
  Object.fromEntries(
    state.nodes.map(({ name }) => [
      podRuntimeName(name),
      readRuntimeRecord(clusterPaths(state.name).nodeState(name)),
    ]),
  );

const PATIENCE_MS = 5000;
/** More than the record of the largest cluster; any user of the machine could have taken the supervisor's address. */
const MAX_RECORD_BYTES = 1 << 20;

/** Reads the supervisor's record from the supervisor itself, or from its file if it does not answer. */
async function readRecord(name: string): Promise<RecordState> {
  const written = readSupervision(name);
  // After a change that could not be written, the standby may be the supervisor, or another process of this network.
  const place = [written.supervisor, written.standby].find(isRunning);
  const connection = await connectToRole('supervisor', name, place ? { pid: place.pid } : null);
  if (!connection) return { supervision: written, problem: null };
  const { socket } = connection;
  const late = setTimeout(() => socket.destroy(), PATIENCE_MS);
  try {
    socket.write(`${JSON.stringify({ record: true })}\n`);
    let text = '';
    for await (const chunk of socket) {
      text += String(chunk);
      if (text.length > MAX_RECORD_BYTES) break;
    }
    return JSON.parse(text) as RecordState;
  } catch (error) {
    // The supervisor ended, or does not answer in time.
    const problem = `it does not answer: ${messageOf(error)}`;
    return { supervision: written, problem };
  } finally {
    clearTimeout(late);
    socket.destroy();
  }
}

/** Reports whether a process was running when the report was written. */
export const runsIn =
  ({ running }: Pick<ClusterReport, 'running'>) =>
  (identity: ProcessIdentity | null): identity is ProcessIdentity =>
    identity !== null && running.includes(identity.pid);
