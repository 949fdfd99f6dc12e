import { type SpawnOptions, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { API_VERSION } from '../agent/configuration.ts';
import { controlSocketVariable } from '../agent/control-socket-path.ts';
import { machinePullsVariable } from '../agent/pod-runtime/machine-pulls.ts';
import { listenTcpIn, type NetnsRef, netnsPath, spawnInNetns } from '../kernel/netns.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../kernel/process-identity.ts';
import type { StartedProcess } from '../kernel/process-supervisor.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { PROXY_VARIABLES } from '../kube/proxy-environment.ts';
import { withoutAuthorities } from '../kube/public-authorities.ts';
import { addressAt, parseCidr } from '../lib/address.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { writtenJson } from '../lib/written-json.ts';
import { nodeNetns, UPLINK, wireNetns } from '../network/topology.ts';
import { API_SERVER, ETCD, programNames, type RealControlPlane } from './control-plane-programs.ts';
import { announcerKubeconfig, completeNodeCredentials } from './credentials.ts';
import type { HeldSockets } from './held-sockets.ts';
import { maxPodsOf } from './plan.ts';
import { programArguments } from './program-arguments.ts';
import type { HeldListeners } from './rootless/held-listeners.ts';
import { socketsFolder } from './rootless/holder.ts';
import {
  type PassedListener,
  passedEnvironment,
  withoutPassedListeners,
} from './rootless/passed-listeners.ts';
import { isRootless } from './rootless/rootless.ts';
import { type ClusterState, clusterPaths, isReady, type NodeState, stateRoot } from './state.ts';
import { CONTROL_PLANE, EGRESS, PUBLISHED_PORTS } from './supervision.ts';

/** The environment variable that marks every process of a cluster, so that `down` finds them after a crash. */
const MARK = 'FAIRLEAD_PROCESS_OF';
/** Returns the variable's value: clusters of root and of users may have the same name. */
const markOf = (cluster: string) => (isRootless() ? `${cluster} in ${stateRoot()}` : cluster);

/** The first descriptor of a child after its standard streams. */
const FIRST_DESCRIPTOR = 3;

/**
 * Flags of Node.js by command; those of the pod runtime are in src/cli/agent.ts. It would extend its young generation to 128 MB during the first lists of a large cluster, and
 * never shrink it. The launcher does the same for an agent on a real cluster. It would also begin with a small one, and
 * collect garbage a dozen times during a start; an agent now collects twice, and no old objects. Most other flags of V8 cost
 * more: Node.js's own modules are compiled without its kept code if V8's flags differ.
 */
export const NODE_FLAGS: Readonly<Record<string, readonly string[]>> = {
  agent: ['--max-semi-space-size=8', '--min-semi-space-size=8'],
  'control-plane': ['--max-semi-space-size=8', '--min-semi-space-size=8'],
};

/**
 * Starts our process of the control plane inside the wire's namespace, with its listeners already open. It serves the API
 * itself, or relays connections of the machine to a real API server, which listens on the wire.
 */
function startControlPlane(state: ClusterState, held: HeldListeners): StartedProcess {
  const ownAddresses = state.realControlPlane ? [] : state.controlPlaneAddresses;
  const passed = held.of('api');
  const opened = [
    listenTcpIn(null, '127.0.0.1', state.apiPort),
    ...ownAddresses.map((address) => listenTcpIn(wireNetns(state.name), address, state.apiPort)),
  ];
  const listeners = [...opened, ...passed];
  try {
    return launch(
      state,
      wireNetns(state.name),
      CONTROL_PLANE,
      ['control-plane', '--name', state.name, '--listeners', String(listeners.length)],
      listeners,
    );
  } finally {
    for (const fd of opened) closeSync(fd);
  }
}

/** Starts a program of a real control plane inside the wire's namespace. */
function startProgram(state: ClusterState, { folder }: RealControlPlane, name: string): StartedProcess {
  return launchProgram(state, {
    netns: wireNetns(state.name),
    name,
    file: join(folder, name),
    words: programArguments(state, name),
    descriptors: [],
    // Not this process's: etcd reads ETCD_… as options, and connections must not go through the machine's proxy.
    environment: { PATH: process.env['PATH'] },
  });
}

/** Starts a node's agent inside its namespace. */
function startNodeAgent(state: ClusterState, node: NodeState, sockets: readonly number[]): StartedProcess {
  const folder = clusterPaths(state.name).node(node.name);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  completeNodeCredentials(state, node);
  const file = join(folder, 'agent.json');
  replaceFile(file, writtenJson(agentConfiguration(state, node)));
  const netns = nodeNetns(state.name, node.name);
  // Of this process, which runs in the machine's network, unless an ordinary user has started it.
  const network = isRootless() ? null : openSync('/proc/thread-self/ns/net', 'r');
  try {
    const pulls = {
      network: network === null ? null : FIRST_DESCRIPTOR + sockets.length,
      settings: clusterPaths(state.name).imagePulls,
    };
    const environment = {
      LISTEN_FDS: String(sockets.length),
      ...machinePullsVariable(pulls),
      ...controlSocketVariable(isRootless() ? socketsFolder() : null),
    };
    const descriptors = [...sockets, ...(network === null ? [] : [network])];
    return launch(state, netns, node.name, ['agent', '--config', file], descriptors, environment);
  } finally {
    if (network !== null) closeSync(network);
  }
}

function agentConfiguration(state: ClusterState, node: NodeState): object {
  const paths = clusterPaths(state.name);
  const folder = paths.node(node.name);
  const service = parseCidr(state.serviceCidrs[0] ?? '');
  return {
    apiVersion: API_VERSION,
    kind: 'AgentConfiguration',
    nodeName: node.name,
    kubeconfig: join(folder, 'kubeconfig'),
    clusterDomain: state.clusterDomain,
    stateDir: paths.nodeState(node.name),
    proxy: {
      mode: state.mode,
      detectLocalMode: 'ClusterCIDR',
      // Without these networks the proxies treat pods as clients from outside the cluster.
      clusterCIDRs: state.proxy.localDetection ? state.podCidrs : [],
      masqueradeAll: state.proxy.masqueradeAll,
      serviceCIDRs: state.serviceCidrs,
    },
    network: { overlay: state.overlay, uplink: UPLINK },
    pods: {
      cgroupParent: cgroupParent(state.name, node.name),
      maxPods: maxPodsOf(state),
      port: 10250,
      nodeAddresses: node.addresses,
      tlsCert: join(folder, 'node.crt'),
      tlsKey: join(folder, 'node.key'),
      clientCA: join(paths.pki, 'ca.crt'),
      apiServiceHost: service ? addressAt(service, 1) : '',
      apiServicePort: 443,
      imagesDir: paths.images,
    },
    dns: { addresses: state.dnsAddresses, refuseAtOnce: true },
    loadBalancer: { interface: UPLINK, kubeconfig: announcerKubeconfig(state, node) },
    healthzBindAddress: '[::]:10256',
    metricsBindAddress: '127.0.0.1:10249',
  };
}

/** Returns the control group below which a node's containers are. */
export function cgroupParent(cluster: string, node?: string): string {
  return node === undefined ? `/fairlead-${cluster}` : `/fairlead-${cluster}/${node}`;
}

/** Returns the names of a cluster's processes, in the order of their start. */
export function processNames(state: ClusterState): readonly string[] {
  return [
    ...(state.realControlPlane ? programNames(state.realControlPlane) : []),
    CONTROL_PLANE,
    ...(state.publishedPorts.length > 0 ? [PUBLISHED_PORTS] : []),
    ...(state.egress ? [EGRESS] : []),
    ...state.nodes.map(({ name }) => name),
  ];
}

/**
 * Reports whether what a process needs is there: the programs and agents of a real control plane need an API server that
 * answers, with the rights of agents. The embedded one's listeners are open from the start.
 */
export function mayStart(state: ClusterState, name: string, controlPlane: ProcessIdentity | null): boolean {
  if (!state.realControlPlane || [ETCD, API_SERVER, CONTROL_PLANE].includes(name)) return true;
  return isReady(clusterPaths(state.name).root, controlPlane);
}

/**
 * Starts a process by its name: the control plane, a program of a real one, the agent of a node, or the one of published
 * ports or egress.
 */
export function startProcess(
  state: ClusterState,
  name: string,
  held: HeldSockets,
  heldListeners: HeldListeners,
): StartedProcess {
  if (name === CONTROL_PLANE) return startControlPlane(state, heldListeners);
  if (name === PUBLISHED_PORTS)
    return launch(state, null, PUBLISHED_PORTS, ['published-ports', '--name', state.name], []);
  if (name === EGRESS) return launch(state, null, EGRESS, ['egress', '--name', state.name], []);
  const { realControlPlane } = state;
  if (realControlPlane && programNames(realControlPlane).includes(name))
    return startProgram(state, realControlPlane, name);
  const node = state.nodes.find((one) => one.name === name);
  if (node) return startNodeAgent(state, node, held.of(state, node));
  throw new FairleadError(`no such process: ${name}`, { op: `start ${name}`, code: 'no-node' });
}

/**
 * Starts a supervisor in this network namespace, with these sockets; if one is already running, the new one becomes its
 * standby.
 */
export function startSupervisor(state: ClusterState, listeners: readonly PassedListener[]): void {
  const descriptors = listeners.flatMap((one) => one.descriptors);
  const environment = passedEnvironment(listeners, FIRST_DESCRIPTOR);
  launch(state, null, 'supervisor', ['supervise', '--name', state.name], descriptors, environment);
}

/** Starts the process that delays the packets of a node's uplink. */
export function startLinkDelay(state: ClusterState, node: string, delayMs: number): StartedProcess {
  const args = ['link-delay', '--name', state.name, '--node', node, '--delay', String(delayMs)];
  return launch(state, null, `link-delay-${node}`, args, []);
}

/** Starts a command of this program. */
function launch(
  state: ClusterState,
  netns: NetnsRef | null,
  name: string,
  args: readonly string[],
  descriptors: readonly number[],
  environment: NodeJS.ProcessEnv = {},
): StartedProcess {
  const flags = NODE_FLAGS[args[0] ?? ''] ?? [];
  return launchProgram(state, {
    netns,
    name,
    file: process.execPath,
    words: [...process.execArgv, ...flags, process.argv[1] ?? '', ...args],
    descriptors,
    environment: {
      ...withoutPassedListeners(withoutAuthorities(withoutProxies(process.env))),
      ...environment,
    },
  });
}

/** The processes of a cluster reach each other in its own namespaces, where the machine's proxy is not. */
function withoutProxies(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const names = new Set<string>(PROXY_VARIABLES.flatMap((name) => [name, name.toLowerCase()]));
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !names.has(name)));
}

interface Launch {
  /** Null: the namespace of this process. */
  readonly netns: NetnsRef | null;
  readonly name: string;
  readonly file: string;
  readonly words: readonly string[];
  readonly descriptors: readonly number[];
  readonly environment: NodeJS.ProcessEnv;
}

function launchProgram(
  state: ClusterState,
  { netns, name, file, words, descriptors, environment }: Launch,
): StartedProcess {
  const paths = clusterPaths(state.name);
  mkdirSync(paths.logs, { recursive: true, mode: 0o700 });
  const log = openSync(paths.log(name), 'a', 0o600);
  try {
    const options: SpawnOptions = {
      cwd: '/',
      detached: true,
      stdio: ['ignore', log, log, ...descriptors],
      env: { ...environment, [MARK]: markOf(state.name) },
    };
    const child =
      netns === null ? spawn(file, words, options) : spawnInNetns(netns, file, [...words], options);
    let ended: string | null = null;
    const listeners: ((reason: string) => void)[] = [];
    const end = (reason: string) => {
      ended ??= reason;
      for (const listener of listeners.splice(0)) listener(ended);
    };
    child.on('error', (error) => end(messageOf(error)));
    child.on('exit', (code, signal) => end(signal ? `killed by ${signal}` : `exited with status ${code}`));
    child.unref();
    const identity = child.pid === undefined ? null : identify(child.pid);
    if (identity) {
      return {
        identity,
        onExit: (call) => void (ended === null ? listeners.push(call) : call(ended)),
      };
    }
    throw new FairleadError(`failed to start ${file}`, {
      op: `start ${name}`,
      code: 'EIO',
      hint: `see ${paths.log(name)}`,
    });
  } finally {
    closeSync(log);
  }
}

/** Returns the last lines of a process's log, for an error message. */
export function logTail(state: ClusterState, name: string, lines = 5): string {
  try {
    return readFileSync(clusterPaths(state.name).log(name), 'utf8')
      .trimEnd()
      .split('\n')
      .slice(-lines)
      .join('\n');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

/** Ends processes by SIGTERM, and after `patienceMs` by SIGKILL. Resolves when they have ended. */
export async function endProcesses(processes: readonly ProcessIdentity[], patienceMs: number): Promise<void> {
  const signal = (name: NodeJS.Signals) => {
    for (const one of processes) signalProcess(one, name);
  };
  const gone = async (ms: number) => {
    for (const until = Date.now() + ms; Date.now() < until; ) {
      if (!processes.some(isRunning)) return true;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return !processes.some(isRunning);
  };
  if (patienceMs > 0) signal('SIGTERM');
  if (await gone(patienceMs)) return;
  signal('SIGKILL');
  if (await gone(30_000)) return;
  const left = processes.filter(isRunning).map((one) => one.pid);
  throw new FairleadError(`failed to stop processes ${left.join(', ')}`, {
    op: 'stop cluster',
    code: 'EBUSY',
  });
}

/**
 * Finds every process of a cluster, recorded or not: by its mark, by its control group, and by its network
 * namespace, which belongs to the cluster or to a process found this way (pods).
 */
export function findProcesses(cluster: string, namespaces: readonly string[]): ProcessIdentity[] {
  const mark = `${MARK}=${markOf(cluster)}\0`;
  const inodes = new Set<string>();
  for (const name of namespaces) {
    const inode = namespaceInode(netnsPath(name));
    if (inode) inodes.add(inode);
  }
  const own = readNamespace(process.pid);
  const found = new Map<number, ProcessIdentity>();
  const pids = readdirSync('/proc')
    .filter((entry) => /^[0-9]+$/.test(entry))
    .map(Number);
  const add = (pid: number) => {
    const identity = identify(pid);
    if (identity && pid !== process.pid) found.set(pid, identity);
  };
  for (const pid of pids) {
    // Without root, a cluster has no control groups: those of its name are root's.
    const isInOwnGroup = !isRootless() && isInGroup(pid, cgroupParent(cluster));
    if (!readEnvironment(pid).includes(mark) && !isInOwnGroup) continue;
    add(pid);
    const inode = readNamespace(pid);
    if (inode && inode !== own) inodes.add(inode);
  }
  for (const pid of pids) {
    const inode = readNamespace(pid);
    if (inode && inode !== own && inodes.has(inode)) add(pid);
  }
  return [...found.values()];
}

function readNamespace(pid: number): string | null {
  try {
    return /\[([0-9]+)\]/.exec(readlinkSync(`/proc/${pid}/ns/net`))?.[1] ?? null;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH', 'EACCES')) return null;
    throw error;
  }
}

/**
 * Reports whether a process is in a control group or below it, in any hierarchy (cgroups(7): number:controllers:path).
 */
function isInGroup(pid: number, group: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cgroup`, 'utf8')
      .split('\n')
      .some((line) => `${line}/`.includes(`:${group}/`));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
    throw error;
  }
}

function readEnvironment(pid: number): string {
  try {
    return `${readFileSync(`/proc/${pid}/environ`, 'latin1')}\0`;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH', 'EACCES')) return '';
    throw error;
  }
}

/** Returns a mounted namespace's inode, as links under /proc show it. */
function namespaceInode(path: string): string | null {
  try {
    const line = readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .find((entry) => entry.split(' ')[4] === path);
    return /net:\[([0-9]+)\]/.exec(line ?? '')?.[1] ?? null;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
}
