import { closeSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { PullSettings } from '../agent/pod-runtime/machine-pulls.ts';
import { listenTcpIn } from '../kernel/netns.ts';
import { identify, isRunning } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { readProxyVariables } from '../kube/proxy-environment.ts';
import { authoritiesFile } from '../kube/public-authorities.ts';
import { httpTransport } from '../kube/transport.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { createTopology, listTopology, plugMachine, routeMachine } from '../network/topology.ts';
import { writeCredentials } from './credentials.ts';
import type { LoopbackListeners } from './loopback-listeners.ts';
import { connectToRole } from './name-lock.ts';
import { addNodes, removeNodes } from './nodes.ts';
import { startSupervisor } from './processes.ts';
import type { Progress } from './progress.ts';
import { passedListener, passedListeners } from './rootless/passed-listeners.ts';
import {
  type ClusterState,
  clusterPaths,
  isUnfinished,
  listClusters,
  readCluster,
  writeCluster,
} from './state.ts';

const FIRST_API_PORT = 6443;

/** Records a plan, so that the plans of other clusters keep their distance from it. */
export function recordPlan(plan: ClusterState): ClusterState {
  const planned = { ...plan, creator: identify(process.pid) };
  writeCluster(planned);
  return planned;
}

/**
 * Creates the namespaces, files and credentials of a cluster whose plan is recorded, and its supervisor, which then starts its
 * processes.
 */
export function createCluster(planned: ClusterState, progress: Progress): ClusterState {
  // Processes start while the rest is being created.
  writePullSettings(planned);
  startSupervisor(planned, passedListeners());
  writeLauncher(planned);
  makeWire(planned);
  writeCredentials(planned);
  progress.step('wire and nodes', planned.nodes.map((node) => node.name).join(' '));
  const created = { ...planned, isCreated: true };
  writeCluster(created);
  return created;
}

/** Writes how nodes pull images: as this process would, by its environment. It may have a proxy's password. */
function writePullSettings({ name, registryMirrors: mirrors = [], ...state }: ClusterState): void {
  const settings: PullSettings = {
    proxies: readProxyVariables(process.env),
    authorities: authoritiesFile(process.env),
    mirrors,
    networks: [...state.podCidrs, ...state.serviceCidrs, ...state.wireCidrs],
  };
  replaceFile(clusterPaths(name).imagePulls, `${JSON.stringify(settings, null, 2)}\n`, 0o600);
}

/** Creates the namespaces and the wire between them, with host access if requested. */
function makeWire(state: ClusterState): void {
  const { name, wireCidrs, controlPlaneAddresses, outsideAddresses, nodes } = state;
  createTopology({ cluster: name, wireCidrs, controlPlaneAddresses, outsideAddresses, nodes });
  if (state.machineAddresses.length > 0) plugMachine(name, state.machineAddresses, wireCidrs);
  for (const { destination, via } of state.machineRoutes) routeMachine(name, destination, via);
}

/** Throws FairleadError if the name is used by namespaces or a folder that do not belong to a cluster. */
export function refuseLeftovers(name: string): void {
  const { root } = clusterPaths(name);
  const refuse = (message: string, hint: string) =>
    new FairleadError(message, { op: 'fairlead up', code: 'EEXIST', hint });
  if (listTopology(name).length > 0) {
    throw refuse(`namespaces of an earlier cluster ${name} exist`, `fairlead down --name ${name}`);
  }
  if (existsSync(root) && !isUnfinished(name))
    throw refuse(`${root} exists and is not a cluster`, 'choose another --name, or remove the folder');
}

/** Writes a command that starts this program, for `exec` on nodes and outside. */
function writeLauncher(state: ClusterState): void {
  const { bin } = clusterPaths(state.name);
  mkdirSync(bin, { recursive: true, mode: 0o755 });
  const words = [process.execPath, ...process.execArgv, process.argv[1] ?? ''];
  const quoted = words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
  replaceFile(join(bin, 'fairlead'), `#!/bin/sh\nexec ${quoted} "$@"\n`, 0o755);
}

/**
 * Restarts the stopped processes of an existing cluster, and adds or removes nodes to reach `nodeCount`; null: no
 * change.
 */
export async function resumeCluster(
  existing: ClusterState,
  nodeCount: number | null,
  progress: Progress,
  timeoutSeconds: number,
): Promise<ClusterState> {
  const { name } = existing;
  // After a reboot or `stop`, only the state exists.
  const isStopped = listTopology(name).length === 0;
  if (isStopped) {
    makeWire(existing);
    writeLauncher(existing);
  }
  const count = nodeCount ?? existing.nodes.length;
  const state = keepNodes(addNodes(existing, count), count);
  writeCluster(state);
  const stopped = [
    ...(isStopped ? ['wire'] : []),
    ...(isRunning(existing.controlPlane) ? [] : ['control plane']),
    ...existing.nodes.slice(0, count).flatMap((node) => (isRunning(node.agent) ? [] : [node.name])),
  ];
  const added = state.nodes.slice(existing.nodes.length).map((node) => node.name);
  writePullSettings(state);
  await wakeSupervisor(state);
  const changes = [
    ...(stopped.length > 0 ? [`restarted: ${stopped.join(', ')}`] : []),
    ...(added.length > 0 ? [`added: ${added.join(', ')}`] : []),
  ];
  progress.step(`cluster ${name}`, changes.join('; ') || 'is running');
  if (count >= state.nodes.length) return state;
  const transport = httpTransport(readKubeconfig(clusterPaths(name).kubeconfig));
  try {
    const client = createClient(transport, 'fairlead-up');
    const deadline = AbortSignal.timeout(timeoutSeconds * 1000);
    const remaining = await removeNodes(client, readCluster(name) ?? state, count, deadline);
    const removed = state.nodes.slice(count).map((node) => node.name);
    progress.step('nodes removed', removed.join(', '));
    return remaining;
  } finally {
    transport.close();
  }
}

/** Clears the marks of interrupted removals. */
function keepNodes(state: ClusterState, count: number): ClusterState {
  const nodes = state.nodes.map(({ isLeaving, ...node }, i) =>
    i >= count && isLeaving === true ? { ...node, isLeaving } : node,
  );
  return { ...state, nodes };
}

/** Makes the supervisor start missing processes immediately; starts a supervisor if none is running. */
async function wakeSupervisor(state: ClusterState): Promise<void> {
  const connection = await connectToRole('supervisor', state.name);
  if (!connection) {
    startSupervisor(state, passedListeners());
    return;
  }
  const { socket } = connection;
  // The supervisor answers, then closes the connection.
  const answered = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(`${JSON.stringify({ hurry: true, pid: process.pid, listeners: passedListeners() })}\n`);
  await answered;
}

/**
 * Returns the first port from 6443 that is not reserved, that no other cluster uses and on which no process listens on this
 * machine's loopback.
 */
export function freeApiPort(reserved: readonly number[]): number {
  const passed = passedListener('api');
  if (passed) return passed.port;
  const { port, descriptors } = openFreeApiPort(reserved);
  for (const fd of descriptors) closeSync(fd);
  return port;
}

/** Listens on the port of `freeApiPort`. */
export function openFreeApiPort(reserved: readonly number[]): LoopbackListeners {
  const taken = new Set([...reserved, ...listClusters().flatMap((name) => readCluster(name)?.apiPort ?? [])]);
  for (let port = FIRST_API_PORT; port <= 65_535; port++) {
    if (taken.has(port)) continue;
    try {
      return { port, descriptors: [listenTcpIn(null, '127.0.0.1', port)] };
    } catch (error) {
      if (!hasCode(error, 'EADDRINUSE')) throw error;
    }
  }
  throw new FairleadError('every port from 6443 on is in use on 127.0.0.1', {
    op: 'fairlead up',
    code: 'EADDRINUSE',
  });
}
