import { readFileSync } from 'node:fs';
import { arch, hostname, release } from 'node:os';
import { ApiError, type Client, hasReason } from '../kube/client.ts';
import { allocatableChanges } from '../kube/extended-resources.ts';
import type { Informer } from '../kube/informer.ts';
import { renewLease } from '../kube/lease.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import { HOSTNAME_LABEL, OS_LABEL } from '../kube/well-known-labels.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { nodeCapacity } from '../runtime/node-capacity.ts';
import type { RuntimeProblems } from './pod-runtime/runtime-health.ts';

export interface RegistrationOptions {
  readonly client: Client;
  readonly nodes: Informer<Node>;
  readonly nodeName: string;
  readonly addresses: readonly string[];
  readonly kubeletPort: number;
  /** The folder of the pods' files. */
  readonly stateDir: string;
  readonly maxPods: number;
  /** Returns what delays the start of the node; null: nothing is known. */
  readonly startProblem: () => string | null;
  readonly version: string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

const LEASE_SECONDS = 40;
const REFRESH_MS = 60_000;

/** This node's object in the API: created or adopted at startup, then kept up to date. */
export interface Registration {
  /** Reports that the node can run pods. */
  setReady(): Promise<void>;
  /** Reports the problem of the node's network (condition NetworkUnavailable); null: none. */
  setNetworkProblem(problem: string | null): void;
  /** Reports the problems of the pod runtime: a node that had been ready is not, while one lasts. */
  setRuntimeProblems(problems: RuntimeProblems): void;
}

interface Readiness {
  readonly isReady: boolean;
  /** When it became so. */
  readonly since: string;
  /** Why it is not; null: it is. */
  readonly problem: string | null;
}

interface NetworkState {
  readonly problem: string | null;
  /** When the problem began, or ended. */
  readonly since: string;
}

/**
 * Creates or updates this node's object, and starts its Lease. If the API server cannot write, for example
 * because its disk is full, an existing node starts nevertheless, and its status is written later.
 */
export async function registerNode(options: RegistrationOptions): Promise<Registration> {
  const { client, nodeName, clock, signal, logger } = options;
  let isStarted = false;
  let runtime: RuntimeProblems = { now: null, lasting: null };
  const isReady = () => isStarted && runtime.lasting === null;
  let readySince = timestamp(clock);
  let network: NetworkState = { problem: null, since: readySince };
  const labels = {
    [HOSTNAME_LABEL]: nodeName,
    [OS_LABEL]: 'linux',
    'kubernetes.io/arch': arch() === 'x64' ? 'amd64' : arch(),
    'beta.kubernetes.io/os': 'linux',
    'beta.kubernetes.io/arch': arch() === 'x64' ? 'amd64' : arch(),
  };
  const readiness = (): Readiness => ({
    isReady: isReady(),
    since: readySince,
    problem: isStarted ? runtime.lasting : startMessage(runtime.now ?? options.startProblem()),
  });
  const status = () => nodeStatus(options, readiness(), network);
  let uid = '';
  let isReported = false;
  try {
    // With its status, as the kubelet creates it.
    const node = await client.create<Node>(RESOURCES.nodes, {
      metadata: { name: nodeName, labels },
      status: status(),
    });
    uid = node.metadata?.uid ?? '';
    isReported = (node.status?.conditions ?? []).length > 0;
  } catch (error) {
    if (!hasReason(error, 'AlreadyExists') && !isServerFault(error)) throw error;
    const adopted = await client
      .patch(RESOURCES.nodes, nodeName, 'merge', { metadata: { labels } })
      .catch(async (fault: unknown) => {
        if (!isServerFault(fault)) throw fault;
        logger.warn({}, `failed to write the node's labels: ${messageOf(fault)}`);
        return await client.get(RESOURCES.nodes, nodeName);
      });
    uid = adopted.metadata?.uid ?? '';
    // A restarting node stays ready, so that its pods stay in the Services while its agent starts.
    const before = adopted.status?.conditions?.find((condition) => condition.type === 'Ready');
    isStarted = before?.status === 'True';
    readySince = String(before?.lastTransitionTime ?? readySince);
  }
  const write = () => {
    const { addresses, allocatable, ...others } = status();
    const changes = {
      ...others,
      // A merge by type would lose all but one address of each type; upstream's kubelet replaces the list too.
      addresses: [{ $patch: 'replace' }, ...addresses],
      // Other extended resources stay.
      allocatable: { ...allocatableChanges(options.nodes.get(nodeName)?.status ?? {}), ...allocatable },
    };
    return client.patch(
      RESOURCES.nodes,
      nodeName,
      'strategic',
      { status: changes },
      { subresource: 'status' },
    );
  };
  const tryToWrite = async () => {
    try {
      await write();
    } catch (error) {
      if (!isServerFault(error)) throw error;
      logger.warn({}, `failed to write the node's status: ${messageOf(error)}`);
    }
  };
  if (!isReported) await tryToWrite();
  void renewLease({
    client,
    namespace: 'kube-node-lease',
    name: nodeName,
    identity: nodeName,
    durationSeconds: LEASE_SECONDS,
    clock,
    random: options.random,
    logger,
    signal,
    ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: nodeName, uid }],
  });
  const refresh = () => {
    const cancel = clock.after(REFRESH_MS, () => {
      write()
        .catch((error: unknown) => logger.warn({}, `failed to write the node's status: ${messageOf(error)}`))
        .finally(refresh);
    });
    signal.addEventListener('abort', cancel, { once: true });
  };
  refresh();
  const writeLater = () => {
    write().catch((error: unknown) =>
      logger.warn({}, `failed to write the node's status: ${messageOf(error)}`),
    );
  };
  // Clients add extended resources to the capacity: pods can use them once they are allocatable.
  const look = (node: Node) => {
    if (node.metadata?.name === nodeName && Object.keys(allocatableChanges(node.status ?? {})).length > 0)
      writeLater();
  };
  options.nodes.handle({ onAdd: look, onUpdate: look });
  return {
    async setReady() {
      if (!isReady()) readySince = timestamp(clock);
      isStarted = true;
      await tryToWrite();
    },
    setNetworkProblem(problem) {
      const since = (problem === null) === (network.problem === null) ? network.since : timestamp(clock);
      network = { problem, since };
      writeLater();
    },
    setRuntimeProblems(problems) {
      const before = readiness();
      runtime = problems;
      if (isReady() !== before.isReady) readySince = timestamp(clock);
      if (readiness().problem !== before.problem) writeLater();
    },
  };
}

/** Returns true if the server answered that it cannot write now, rather than that the request is wrong. */
function isServerFault(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 500;
}

function nodeStatus(options: RegistrationOptions, readiness: Readiness, network: NetworkState) {
  const now = timestamp(options.clock);
  const healthy = (type: string, reason: string, message: string) => ({
    type,
    status: 'False',
    reason,
    message,
    lastHeartbeatTime: now,
    lastTransitionTime: readiness.since,
  });
  const capacity = nodeCapacity(options.stateDir, options.maxPods);
  return {
    addresses: [
      ...options.addresses.map((address) => ({ type: 'InternalIP', address })),
      { type: 'Hostname', address: options.nodeName },
    ],
    capacity,
    allocatable: capacity,
    daemonEndpoints: { kubeletEndpoint: { Port: options.kubeletPort } },
    conditions: [
      {
        type: 'NetworkUnavailable',
        status: network.problem === null ? 'False' : 'True',
        reason: network.problem === null ? 'NetworkComplete' : 'NetworkIncomplete',
        message: network.problem ?? 'the pod network is complete',
        lastHeartbeatTime: now,
        lastTransitionTime: network.since,
      },
      healthy('MemoryPressure', 'KubeletHasSufficientMemory', 'there is enough memory'),
      healthy('DiskPressure', 'KubeletHasNoDiskPressure', 'there is enough disk'),
      healthy('PIDPressure', 'KubeletHasSufficientPID', 'there are enough process numbers'),
      {
        type: 'Ready',
        status: readiness.isReady ? 'True' : 'False',
        reason: readiness.isReady ? 'KubeletReady' : 'KubeletNotReady',
        message: readiness.problem ?? 'network, Services, DNS and pods work',
        lastHeartbeatTime: now,
        lastTransitionTime: readiness.since,
      },
    ],
    nodeInfo: {
      machineID: readFirst('/etc/machine-id'),
      systemUUID: '',
      bootID: readFirst('/proc/sys/kernel/random/boot_id'),
      kernelVersion: release(),
      osImage: osName(),
      containerRuntimeVersion: 'crun://1',
      kubeletVersion: options.version,
      kubeProxyVersion: options.version,
      operatingSystem: 'linux',
      architecture: arch() === 'x64' ? 'amd64' : arch(),
    },
  };
}

const startMessage = (problem: string | null) =>
  problem === null ? 'the node is starting' : `the node is starting: ${problem}`;

function osName(): string {
  return /^PRETTY_NAME="?([^"\n]*)/m.exec(readFirst('/etc/os-release'))?.[1] ?? hostname();
}

function readFirst(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

function timestamp(clock: Clock): string {
  return `${new Date(clock.now()).toISOString().slice(0, 19)}Z`;
}
