import { mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';

/** A process as its number and its start time (clock ticks since boot), since numbers are used again. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTime: string;
}

/** What `up` decided about a local cluster; kept in cluster.json until `down`. */
export interface ClusterState {
  readonly name: string;
  readonly version: string;
  readonly createdAt: string;
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
}

export const DEFAULT_CLUSTER = 'default';

/** The folder below which every local cluster keeps its state. */
export function stateRoot(): string {
  return process.env['FAIRLEAD_STATE'] ?? '/var/lib/fairlead';
}

/** Where a cluster's files lie. */
export function clusterPaths(name: string) {
  const root = join(stateRoot(), name);
  return {
    root,
    state: join(root, 'cluster.json'),
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
    return JSON.parse(readFileSync(clusterPaths(name).state, 'utf8')) as ClusterState;
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

/** The state of a cluster that must exist. */
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

/** Writes the state so that a reader sees either the old or the new one whole. */
export function writeCluster(state: ClusterState): void {
  const { root, state: file } = clusterPaths(state.name);
  mkdirSync(root, { recursive: true, mode: 0o700 });
  replaceFile(file, `${JSON.stringify(state, null, 2)}\n`);
}

/** Names of the clusters that have a state folder, whole or broken. */
export function listClusters(): string[] {
  try {
    return readdirSync(stateRoot(), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name)
      .sort();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
}

/** Removes a cluster's folder, and the common one when it was the last. */
export function removeClusterFolder(name: string): void {
  rmSync(clusterPaths(name).root, { recursive: true, force: true });
  try {
    rmdirSync(stateRoot());
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY')) throw error;
  }
}

/** The identity of a running process, or null when it is gone (or a zombie). */
export function identify(pid: number): ProcessIdentity | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return null;
    throw error;
  }
  // The command's name, in parentheses, may hold spaces: fields are counted behind its end (proc(5): 3 state, 22 starttime).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const startTime = fields[19];
  return fields[0] === 'Z' || startTime === undefined ? null : { pid, startTime };
}

/** True while that very process runs. */
export function isRunning(identity: ProcessIdentity | null): identity is ProcessIdentity {
  return identity !== null && identify(identity.pid)?.startTime === identity.startTime;
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
