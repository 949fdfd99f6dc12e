import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { identify, type ProcessIdentity } from './process-identity.ts';
import { CONTROL_PLANE, NO_SUPERVISION, type Supervision } from './supervision.ts';

/**
 * What `up` decided about a local cluster, kept in cluster.json until `down`, with the processes that the supervisor
 * started.
 */
export interface ClusterState {
  readonly name: string;
  readonly version: string;
  readonly createdAt: string;
  /** False while `creator` still makes what the processes need. */
  readonly isCreated: boolean;
  readonly creator: ProcessIdentity | null;
  readonly mode: Mode;
  /** Of the proxies' configuration what `up` lets people choose. */
  readonly proxy: { readonly masqueradeAll: boolean; readonly localDetection: boolean };
  readonly ipFamily: 'ipv4' | 'ipv6' | 'dual';
  /** How pods' packets go from node to node. */
  readonly overlay: 'routes' | 'vxlan';
  readonly clusterDomain: string;
  /** How the API server decides what users may do. */
  readonly authorization: 'RBAC' | 'AlwaysAllow';
  /** One per family, primary family first. */
  readonly podCidrs: readonly string[];
  readonly serviceCidrs: readonly string[];
  readonly wireCidrs: readonly string[];
  readonly loadBalancerPools: readonly string[];
  /** Addresses of the cluster's DNS, one per family. */
  readonly dnsAddresses: readonly string[];
  /** The control plane's own addresses on the wire. */
  readonly controlPlaneAddresses: readonly string[];
  readonly outsideAddresses: readonly string[];
  /** This machine's own addresses on the wire; empty: it is not plugged in. */
  readonly machineAddresses: readonly string[];
  /** Networks that this machine reaches by a node: Services'. */
  readonly machineRoutes: readonly { readonly destination: string; readonly via: string }[];
  /** Port of the API server, on loopback and on the wire. */
  readonly apiPort: number;
  readonly nodes: readonly NodeState[];
  readonly controlPlane: ProcessIdentity | null;
}

export interface NodeState {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly agent: ProcessIdentity | null;
  /** It is being removed: its agent is not started again. */
  readonly isLeaving?: boolean;
}

export const DEFAULT_CLUSTER = 'default';
/** A folder is a cluster if it has this file. */
const STATE_FILE = 'cluster.json';

/**
 * The cluster that a command is about where it names none: that of the environment variable FAIRLEAD_CLUSTER, else the
 * only one there is, else "default".
 */
export function usualCluster(environment: Readonly<Record<string, string | undefined>>): string {
  const { FAIRLEAD_CLUSTER: wanted } = environment;
  if (wanted) return checkClusterName(wanted);
  const [only, ...others] = listClusters();
  return only !== undefined && others.length === 0 ? only : DEFAULT_CLUSTER;
}

/** The folder below which every local cluster keeps its state. */
export function stateRoot(): string {
  return process.env['FAIRLEAD_STATE'] ?? '/var/lib/fairlead';
}

/** Where a cluster's files lie. */
export function clusterPaths(name: string) {
  const root = join(stateRoot(), name);
  return {
    root,
    state: join(root, STATE_FILE),
    processes: join(root, 'processes.json'),
    kubeconfig: join(root, 'kubeconfig'),
    pki: join(root, 'pki'),
    data: join(root, 'data.db'),
    /** Put in front of the PATH of `exec` on nodes and outside. */
    bin: join(root, 'bin'),
    /** Images that are not built in, shared by the nodes. */
    images: join(root, 'images'),
    /** PersistentVolumes of the default StorageClass, shared by the nodes. */
    volumes: join(root, 'volumes'),
    logs: join(root, 'logs'),
    log: (process: string) => join(root, 'logs', `${process}.log`),
    node: (node: string) => join(root, 'nodes', node),
    /** What a node's agent keeps. */
    nodeState: (node: string) => join(root, 'nodes', node, 'state'),
  };
}

/** Refuses names that could not stand in a namespace's name or a path. */
export function checkClusterName(name: string): string {
  if (!/^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$/.test(name)) {
    throw new FairleadError(`invalid cluster name ${JSON.stringify(name)}`, {
      op: 'read --name',
      code: 'bad-name',
      hint: 'use 1 to 20 lower-case letters, digits and dashes, starting and ending with a letter or digit',
    });
  }
  return name;
}

/** The state of a cluster, or null when there is none of that name. */
export function readCluster(name: string): ClusterState | null {
  try {
    const stored = JSON.parse(readFileSync(clusterPaths(name).state, 'utf8')) as ClusterState;
    return withProcesses(stored, readSupervision(name));
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw new FairleadError(`cannot read the state of cluster ${name}`, {
      op: 'read cluster state',
      code: 'bad-state',
      object: clusterPaths(name).state,
      hint: `fairlead down --name ${name}`,
      cause: error,
    });
  }
}

function withProcesses(stored: ClusterState, { processes }: Supervision): ClusterState {
  return {
    ...stored,
    controlPlane: processes[CONTROL_PLANE]?.identity ?? null,
    nodes: stored.nodes.map((node) => ({ ...node, agent: processes[node.name]?.identity ?? null })),
  };
}

/** Reads what the supervisor wrote down last; nothing where none has run. */
export function readSupervision(name: string): Supervision {
  try {
    return JSON.parse(readFileSync(clusterPaths(name).processes, 'utf8')) as Supervision;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return NO_SUPERVISION;
    throw error;
  }
}

/** Replaces processes.json; only the supervisor does. */
export function writeSupervision(name: string, supervision: Supervision): void {
  replaceFile(clusterPaths(name).processes, `${JSON.stringify(supervision, null, 2)}\n`);
}

/** Returns the state of a cluster that must exist. */
export function requireCluster(name: string): ClusterState {
  const state = readCluster(checkClusterName(name));
  if (state) return state;
  const others = listClusters();
  throw new FairleadError(`no such cluster: ${name}`, {
    op: 'find cluster',
    code: 'no-cluster',
    hint: others.length > 0 ? `--name ${others.join(', or --name ')}` : 'start one: fairlead up',
  });
}

/** Writes the state, without the processes, which are the supervisor's; a reader sees the old or the new file whole. */
export function writeCluster(state: ClusterState): void {
  const { root, state: file } = clusterPaths(state.name);
  mkdirSync(root, { recursive: true, mode: 0o700 });
  const nodes = state.nodes.map((node) => ({ ...node, agent: null }));
  replaceFile(file, `${JSON.stringify({ ...state, controlPlane: null, nodes }, null, 2)}\n`);
}

/** Names of the clusters, whole or broken. Other folders below the state root, such as an agent's, are not clusters. */
export function listClusters(): string[] {
  try {
    return readdirSync(stateRoot(), { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && existsSync(join(entry.parentPath, entry.name, STATE_FILE)))
      .map((entry) => entry.name)
      .sort();
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'EACCES')) return [];
    throw error;
  }
}

/** Tells whether a cluster's folder is there without its state, as `up` leaves it when it is killed at its first write. */
export function isUnfinished(name: string): boolean {
  const { root } = clusterPaths(name);
  return (
    existsSync(root) &&
    readdirSync(root).every((entry) => entry.startsWith(`${STATE_FILE}.`) && entry.endsWith('.new'))
  );
}

/** Removes a cluster's folder, and the common one when it was the last. */
export function removeClusterFolder(name: string): void {
  const { root } = clusterPaths(name);
  // The state last: it marks the folder as a cluster's while anything is left of it.
  for (const entry of existsSync(root) ? readdirSync(root) : [])
    if (entry !== STATE_FILE) rmSync(join(root, entry), { recursive: true, force: true });
  rmSync(root, { recursive: true, force: true });
  try {
    rmdirSync(stateRoot());
  } catch (error) {
    // EBUSY: it is a mount point.
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY', 'EBUSY')) throw error;
  }
}

const READY = 'ready.json';

/** Writes down that this process, an agent, does all that its node needs. */
export function markReady(stateDir: string): void {
  replaceFile(join(stateDir, READY), JSON.stringify(identify(process.pid)));
}

/**
 * Whether that very agent has said so. The node's object in the API cannot tell: it stays Ready while an agent starts
 * again, since traffic goes on.
 */
export function isReady(stateDir: string, agent: ProcessIdentity | null): boolean {
  try {
    const ready = JSON.parse(readFileSync(join(stateDir, READY), 'utf8')) as ProcessIdentity | null;
    return agent !== null && ready?.pid === agent.pid && ready.startTime === agent.startTime;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}
