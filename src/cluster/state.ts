import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { identify, type ProcessIdentity } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode, isDiskFull, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import type { RegistryMirror } from '../runtime/images/registry-endpoint.ts';
import type { RealControlPlane } from './control-plane-programs.ts';
import { poolOf } from './load-balancer-pools.ts';
import { userStateRoot } from './rootless/rootless.ts';
import type { PublishedPort } from './service-port.ts';
import { CONTROL_PLANE, NO_SUPERVISION, type Supervision } from './supervision.ts';
import { userContexts } from './user-contexts.ts';
import type { UserKubeconfig } from './user-kubeconfig.ts';

/** The plan of a local cluster, stored in cluster.json from `up` until `down`. */
export interface ClusterState {
  readonly name: string;
  readonly version: string;
  readonly createdAt: string;
  /** False while `creator` is still creating the namespaces and files of the processes. */
  readonly isCreated: boolean;
  readonly creator: ProcessIdentity | null;
  readonly mode: Mode;
  /** The part of the proxies' configuration that `up` has options for. */
  readonly proxy: { readonly masqueradeAll: boolean; readonly localDetection: boolean };
  readonly ipFamily: 'ipv4' | 'ipv6' | 'dual';
  /** How pods' packets are routed between nodes. */
  readonly overlay: 'routes' | 'vxlan';
  readonly clusterDomain: string;
  /** The authorization mode of the API server. */
  readonly authorization: 'RBAC' | 'AlwaysAllow';
  /** One per family, primary family first. */
  readonly podCidrs: readonly string[];
  /** How many pods a node has room for. Absent in the state of earlier versions. */
  readonly maxPods?: number;
  readonly serviceCidrs: readonly string[];
  readonly wireCidrs: readonly string[];
  readonly loadBalancerPools: readonly LoadBalancerPool[];
  /** Addresses of the cluster's DNS, one per family. */
  readonly dnsAddresses: readonly string[];
  /** The control plane's own addresses on the wire. */
  readonly controlPlaneAddresses: readonly string[];
  readonly outsideAddresses: readonly string[];
  /** This machine's own addresses on the wire; empty: neither host access nor egress. */
  readonly machineAddresses: readonly string[];
  /** Whether programs of this machine use its addresses on the wire. Absent in the state of earlier versions. */
  readonly hostAccess?: 'none' | 'wire' | 'services';
  /** Pods reach external networks through this machine. Absent in the state of earlier versions. */
  readonly egress?: boolean;
  /** Servers that nodes ask for images before their registries. Absent: none. */
  readonly registryMirrors?: readonly RegistryMirror[];
  /** Networks that this machine reaches through a node: the Service networks. */
  readonly machineRoutes: readonly { readonly destination: string; readonly via: string }[];
  /** Ports of this machine's loopback that are forwarded to Services. */
  readonly publishedPorts: readonly PublishedPort[];
  /** Port of the API server, on loopback and on the wire. */
  readonly apiPort: number;
  readonly nodes: readonly NodeState[];
  /** Our own process of the control plane. */
  readonly controlPlane: ProcessIdentity | null;
  /** Kubernetes' own programs that serve the cluster. Absent or null: the embedded control plane does. */
  readonly realControlPlane?: RealControlPlane | null;
  /** The kubeconfig of the user who ran `up` by sudo, to which the cluster was added. */
  readonly userKubeconfig?: UserKubeconfig;
}

export interface NodeState {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly agent: ProcessIdentity | null;
  /** The node is being removed: its agent is not restarted. */
  readonly isLeaving?: boolean;
}

/** The state of root's clusters. */
const ROOT_STATE = '/var/lib/fairlead';
export const DEFAULT_CLUSTER = 'default';
/** A folder with this file is a cluster. */
const STATE_FILE = 'cluster.json';

/**
 * Returns the default cluster of a command: the environment variable FAIRLEAD_CLUSTER, else the only existing cluster,
 * else "default". For users who may not read the state folder, the clusters are those of their kubeconfig, of which the
 * current context has precedence.
 */
export function usualCluster(environment: Readonly<Record<string, string | undefined>>): string {
  const { FAIRLEAD_CLUSTER: wanted } = environment;
  if (wanted) return checkClusterName(wanted);
  const clusters = listClusters();
  const contexts = clusters.length > 0 || process.getuid?.() === 0 ? [] : userContexts(environment);
  const current = contexts.find(({ isCurrent }) => isCurrent);
  if (current) return current.cluster;
  const [only, ...others] = [...clusters, ...contexts.map(({ cluster }) => cluster)];
  return only !== undefined && others.length === 0 ? only : DEFAULT_CLUSTER;
}

/** Returns the folder with the state of all local clusters of this user. */
export function stateRoot(): string {
  return process.env['FAIRLEAD_STATE'] ?? (process.getuid?.() === 0 ? ROOT_STATE : userStateRoot());
}

/** Returns the folder with the state of root's local clusters. */
export function rootStateRoot(): string {
  return process.env['FAIRLEAD_STATE'] ?? ROOT_STATE;
}

/** Reports whether this process may read a cluster's folder, or would be able to if it existed. */
export function mayReadCluster(name: string): boolean {
  try {
    accessSync(clusterPaths(name).root, constants.R_OK | constants.X_OK);
    return true;
  } catch (error) {
    return !hasCode(error, 'EACCES');
  }
}

/** Returns the paths of a cluster's files. */
export function clusterPaths(name: string) {
  const root = join(stateRoot(), name);
  return {
    root,
    state: join(root, STATE_FILE),
    processes: join(root, 'processes.json'),
    publishedPorts: join(root, 'published-ports.json'),
    egress: join(root, 'egress.json'),
    /** How its nodes pull images. */
    imagePulls: join(root, 'image-pulls.json'),
    kubeconfig: join(root, 'kubeconfig'),
    pki: join(root, 'pki'),
    data: join(root, 'data.db'),
    /** The data of a real control plane. */
    etcd: join(root, 'etcd'),
    /** Prepended to the PATH of `exec` on nodes and outside. */
    bin: join(root, 'bin'),
    /** Images that are not built in, shared by the nodes. */
    images: join(root, 'images'),
    /** PersistentVolumes of the default StorageClass, shared by the nodes. */
    volumes: join(root, 'volumes'),
    logs: join(root, 'logs'),
    log: (process: string) => join(root, 'logs', `${process}.log`),
    node: (node: string) => join(root, 'nodes', node),
    /** The state of a node's agent. */
    nodeState: (node: string) => join(root, 'nodes', node, 'state'),
  };
}

/** Rejects names that are not valid in namespace names and paths. */
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

/** Reads the state of a cluster; returns null if it does not exist. */
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
      hint: hasCode(error, 'EACCES') ? 'only root may read it: use sudo' : `fairlead down --name ${name}`,
      cause: error,
    });
  }
}

function withProcesses(stored: ClusterState, { processes }: Supervision): ClusterState {
  return {
    ...stored,
    // Absent in the state of versions before this field.
    publishedPorts: stored.publishedPorts ?? [],
    // Addresses without a name in the state of earlier versions.
    loadBalancerPools: isTexts(stored.loadBalancerPools)
      ? [poolOf(stored.loadBalancerPools)]
      : stored.loadBalancerPools,
    controlPlane: processes[CONTROL_PLANE]?.identity ?? null,
    nodes: stored.nodes.map((node) => ({ ...node, agent: processes[node.name]?.identity ?? null })),
  };
}

const isTexts = (list: readonly unknown[]): list is readonly string[] =>
  list.length > 0 && list.every((entry) => typeof entry === 'string');

/** Reads the supervisor's last record; empty if none has run. */
export function readSupervision(name: string): Supervision {
  try {
    return JSON.parse(readFileSync(clusterPaths(name).processes, 'utf8')) as Supervision;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return NO_SUPERVISION;
    throw error;
  }
}

/** Replaces processes.json; called by the supervisor only. */
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
    hint: others.length > 0 ? `--name ${others.join(', or --name ')}` : `start one: fairlead up${ofRoot()}`,
  });
}

/** The cluster that users who do not see root's clusters may have meant. */
const ofRoot = () => (process.getuid?.() === 0 ? '' : '; for a cluster of root: the same command with sudo');

/** Replaces cluster.json atomically; processes.json belongs to the supervisor. */
export function writeCluster(state: ClusterState): void {
  const { root, state: file } = clusterPaths(state.name);
  mkdirSync(root, { recursive: true, mode: 0o700 });
  const nodes = state.nodes.map((node) => ({ ...node, agent: null }));
  replaceFile(file, `${JSON.stringify({ ...state, controlPlane: null, nodes }, null, 2)}\n`);
}

/** Returns the names of all clusters, complete or broken. Other folders below the state root are not clusters. */
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

/** Reports whether a cluster's folder exists without its state, as after an `up` that was killed at its first write. */
export function isUnfinished(name: string): boolean {
  try {
    const entries = readdirSync(clusterPaths(name).root);
    return entries.every((entry) => entry.startsWith(`${STATE_FILE}.`) && entry.endsWith('.new'));
  } catch (error) {
    // EACCES: another user's cluster.
    if (hasCode(error, 'ENOENT', 'EACCES')) return false;
    throw error;
  }
}

/** Removes a cluster's folder, and the common folder after the last cluster. */
export function removeClusterFolder(name: string): void {
  const { root } = clusterPaths(name);
  // The state last: it marks the folder as a cluster's while it has any contents.
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

/** Records that the node of this agent, or the real control plane of this process, is ready; on a full disk, what waits for it waits longer. */
export function markReady(stateDir: string, logger: Logger): void {
  try {
    replaceFile(join(stateDir, READY), JSON.stringify(identify(process.pid)));
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    logger.warn({}, `failed to record readiness: ${messageOf(error)}`);
  }
}

/**
 * Reports whether this process has recorded its readiness. An agent's Node object does not show it: it remains Ready while
 * an agent restarts, since traffic continues.
 */
export function isReady(stateDir: string, process: ProcessIdentity | null): boolean {
  try {
    const ready = JSON.parse(readFileSync(join(stateDir, READY), 'utf8')) as ProcessIdentity | null;
    return process !== null && ready?.pid === process.pid && ready.startTime === process.startTime;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}
