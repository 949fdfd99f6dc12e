import { AGENT_NODE_LABELS } from '../agent/node-events.ts';
import { createPod, removeNamespace } from '../conformance/check-cluster.ts';
import { type Client, readBody } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import { type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import { AGENT_SELECTOR } from './remote-agents.ts';
import { problemText } from './remote-cluster.ts';

/** A command that runs once on nodes, in a privileged pod on each, and prints JSON. */
export interface NodeProgram<T> {
  /** "preflight": the container, and the names of the pods. */
  readonly name: string;
  /** Made before, and removed after. */
  readonly namespace: string;
  readonly args: readonly string[];
  readonly volumes: readonly NodeVolume[];
  /** How long a pod may take, with the pull of its image. */
  readonly patienceMs: number;
  /** Returns the result in what the pod printed; null: there is none. */
  read(printed: Readonly<Record<string, unknown>>): T | null;
}

/** A folder or file of the node. */
export interface NodeVolume {
  readonly name: string;
  readonly path: string;
  /** Absent: the same path. */
  readonly mountPath?: string;
  readonly type?: 'FileOrCreate' | 'DirectoryOrCreate';
  readonly readOnly?: true;
  readonly mountPropagation?: 'HostToContainer' | 'Bidirectional';
}

/** Where the pods have their node's file system. */
export const NODE_ROOT = '/node';

export interface NodeRunOptions {
  readonly client: Client;
  /** For logs, which are not JSON. */
  readonly transport: Transport;
  readonly image: string;
  readonly nodes: readonly string[];
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** The findings of a program on a node, or why there are none. */
export interface NodeResult<T> {
  readonly node: string;
  readonly result: T | null;
  readonly problem: string | null;
}

const MAX_PODS = 20;
const POLL_MS = 250;
/** Reasons of containers that wait for an administrator. */
const STUCK = new Set([
  'ImagePullBackOff',
  'ErrImageNeverPull',
  'InvalidImageName',
  'CreateContainerConfigError',
  'CreateContainerError',
]);

/**
 * Runs a program on nodes, each in a privileged pod of its own, whether the node is ready or not. The pods' namespace is
 * made before and removed after. A node without an answer has a problem. Throws FairleadError if the namespace is refused.
 */
export async function runOnNodes<T>(
  program: NodeProgram<T>,
  options: NodeRunOptions,
  onNode: (result: NodeResult<T>) => void,
): Promise<NodeResult<T>[]> {
  const { client, nodes, signal } = options;
  const { namespace, name } = program;
  await removeNamespace(client, namespace);
  try {
    await client.create(RESOURCES.namespaces, {
      metadata: {
        name: namespace,
        labels: {
          'pod-security.kubernetes.io/enforce': 'privileged',
          'pod-security.kubernetes.io/warn': 'privileged',
          'pod-security.kubernetes.io/audit': 'privileged',
        },
      },
    });
    const turns = createSemaphore(MAX_PODS);
    const runOne = async (node: string, index: number) => {
      signal.throwIfAborted();
      const result = await runOn(program, options, node, `${name}-${index}`);
      onNode(result);
      return result;
    };
    return await Promise.all(nodes.map((node, index) => turns.run(() => runOne(node, index))));
  } finally {
    await removeNamespace(client, namespace);
  }
}

async function runOn<T>(
  program: NodeProgram<T>,
  options: NodeRunOptions,
  node: string,
  name: string,
): Promise<NodeResult<T>> {
  const { client, image, signal } = options;
  try {
    await createPod(client, podOf(program, name, node, image));
    await ended(program, options, name);
    const result = await readResult(program, options, name);
    await client.delete(RESOURCES.pods, name, { namespace: program.namespace });
    return { node, result, problem: null };
  } catch (error) {
    signal.throwIfAborted();
    return { node, result: null, problem: problemText(error) };
  }
}

/** Waits until a pod has ended. Throws FairleadError if it cannot start. */
async function ended<T>(
  { name: op, namespace, patienceMs }: NodeProgram<T>,
  { client, clock, signal, image }: NodeRunOptions,
  name: string,
): Promise<void> {
  for (const until = clock.now() + patienceMs; ; ) {
    signal.throwIfAborted();
    const { status } = await client.get<Pod>(RESOURCES.pods, name, namespace);
    if (status?.phase === 'Succeeded' || status?.phase === 'Failed') return;
    const waiting = status?.containerStatuses?.[0]?.state?.waiting;
    if (waiting?.reason && STUCK.has(waiting.reason))
      throw new FairleadError(
        `its pod does not start: ${waiting.reason}${waiting.message ? `: ${waiting.message}` : ''}`,
        {
          op,
          code: 'not-ready',
          hint: `--image with an image of fairlead that the node can pull, instead of ${image}`,
        },
      );
    if (clock.now() > until)
      throw new FairleadError(
        `its pod has not ended after ${patienceMs / 1000} s (${waiting?.reason ?? status?.phase ?? 'Pending'})`,
        { op, code: 'not-ready', hint: 'check whether the kubelet of the node is running' },
      );
    await pause(clock, POLL_MS, signal);
  }
}

async function readResult<T>(
  { name: op, namespace, read }: NodeProgram<T>,
  { transport, signal }: NodeRunOptions,
  name: string,
): Promise<T> {
  const path = `/api/v1/namespaces/${namespace}/pods/${name}/log`;
  const response = await transport({ method: 'GET', path, headers: {}, signal });
  const text = await readBody(response.body);
  try {
    // Warnings of the runtime may come before and after it.
    const printed: unknown = JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1));
    const result = response.status === 200 ? read(printed as Readonly<Record<string, unknown>>) : null;
    if (result !== null) return result;
  } catch {
    // Not what the program prints: below.
  }
  throw new FairleadError(`its pod printed no findings: ${text.trim().split('\n').at(-1) || '(nothing)'}`, {
    op,
    code: 'ended',
    hint: '--image with an image of this version of fairlead',
  });
}

/** Returns a pod that may do everything on its node, and starts whatever the node's condition. */
function podOf<T>(
  { name: container, namespace, args, volumes }: NodeProgram<T>,
  name: string,
  nodeName: string,
  image: string,
): Pod {
  return {
    metadata: { name, namespace },
    spec: {
      nodeName,
      hostNetwork: true,
      // Running proxies are found by their processes.
      hostPID: true,
      dnsPolicy: 'Default',
      restartPolicy: 'Never',
      terminationGracePeriodSeconds: 0,
      automountServiceAccountToken: false,
      tolerations: [{ operator: 'Exists' }],
      containers: [
        {
          name: container,
          image,
          imagePullPolicy: 'IfNotPresent',
          args: [...args],
          securityContext: { privileged: true, readOnlyRootFilesystem: true },
          volumeMounts: volumes.map(({ name: volume, path, mountPath = path, type: _, ...rest }) => ({
            name: volume,
            mountPath,
            ...rest,
          })),
        },
      ],
      volumes: volumes.map(({ name: volume, path, type }) => ({
        name: volume,
        hostPath: { path, ...(type === undefined ? {} : { type }) },
      })),
    },
  } as Pod;
}

/** The nodes of a cluster on which agents can run, and the agents that do. */
export interface NodeTargets {
  readonly nodes: readonly string[];
  /** The image of the agents; null: no agent runs. */
  readonly image: string | null;
  /** The nodes with a pod of the agents. */
  readonly running: readonly string[];
}

export async function nodeTargets(client: Pick<Client, 'list'>): Promise<NodeTargets> {
  const { items } = await client.list<Node>(RESOURCES.nodes);
  const agents = await client.list<Pod>(RESOURCES.pods, { labelSelector: AGENT_SELECTOR });
  const wanted = Object.entries(AGENT_NODE_LABELS);
  return {
    nodes: items
      .filter(({ metadata }) => wanted.every(([label, value]) => metadata?.labels?.[label] === value))
      .flatMap(({ metadata }) => metadata?.name ?? [])
      .sort((a, b) => a.localeCompare(b, 'en', { numeric: true })),
    image: agents.items[0]?.spec?.containers[0]?.image ?? null,
    running: agents.items.flatMap(({ spec }) => spec?.nodeName ?? []),
  };
}
