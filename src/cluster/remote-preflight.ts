import { AGENT_NODE_LABELS } from '../agent/node-events.ts';
import type { Finding } from '../agent/preflight.ts';
import { createPod, removeNamespace } from '../conformance/check-cluster.ts';
import { NODE_CONTROL_GROUPS } from '../kernel/control-group.ts';
import { type Client, readBody } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import { type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import { AGENT_SELECTOR } from './remote-agents.ts';
import { problemText } from './remote-cluster.ts';

/** The findings of a node, or why there are none. */
export interface NodePreflight {
  readonly node: string;
  readonly findings: readonly Finding[];
  readonly problem: string | null;
}

export interface RemotePreflightOptions {
  readonly client: Client;
  /** For logs, which are not JSON. */
  readonly transport: Transport;
  readonly image: string;
  readonly nodes: readonly string[];
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onNode: (result: NodePreflight) => void;
}

export const PREFLIGHT_NAMESPACE = 'fairlead-preflight';
/** Where the pod has the node's file system. */
const NODE_ROOT = '/node';
const MAX_PODS = 20;
const PATIENCE_MS = 120_000;
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
 * Runs `preflight` on nodes, each in a privileged pod of its own, whether the node is ready or not. The pods' namespace is
 * made before and removed after. A node without an answer has a problem. Throws FairleadError if the namespace is refused.
 */
export async function preflightNodes(options: RemotePreflightOptions): Promise<NodePreflight[]> {
  const { client, nodes, signal, onNode } = options;
  await removeNamespace(client, PREFLIGHT_NAMESPACE);
  try {
    await client.create(RESOURCES.namespaces, {
      metadata: {
        name: PREFLIGHT_NAMESPACE,
        labels: {
          'pod-security.kubernetes.io/enforce': 'privileged',
          'pod-security.kubernetes.io/warn': 'privileged',
          'pod-security.kubernetes.io/audit': 'privileged',
        },
      },
    });
    const turns = createSemaphore(MAX_PODS);
    const checkOne = async (node: string, index: number) => {
      signal.throwIfAborted();
      const result = await checkNode(options, node, `preflight-${index}`);
      onNode(result);
      return result;
    };
    return await Promise.all(nodes.map((node, index) => turns.run(() => checkOne(node, index))));
  } finally {
    await removeNamespace(client, PREFLIGHT_NAMESPACE);
  }
}

async function checkNode(
  options: RemotePreflightOptions,
  node: string,
  name: string,
): Promise<NodePreflight> {
  const { client, image, signal } = options;
  try {
    await createPod(client, preflightPod(name, node, image));
    await ended(options, name);
    const findings = await readFindings(options, name);
    await client.delete(RESOURCES.pods, name, { namespace: PREFLIGHT_NAMESPACE });
    return { node, findings, problem: null };
  } catch (error) {
    signal.throwIfAborted();
    return { node, findings: [], problem: problemText(error) };
  }
}

/** Waits until a pod has ended. Throws FairleadError if it cannot start. */
async function ended({ client, clock, signal, image }: RemotePreflightOptions, name: string): Promise<void> {
  for (const until = clock.now() + PATIENCE_MS; ; ) {
    signal.throwIfAborted();
    const { status } = await client.get<Pod>(RESOURCES.pods, name, PREFLIGHT_NAMESPACE);
    if (status?.phase === 'Succeeded' || status?.phase === 'Failed') return;
    const waiting = status?.containerStatuses?.[0]?.state?.waiting;
    if (waiting?.reason && STUCK.has(waiting.reason))
      throw new FairleadError(
        `its pod does not start: ${waiting.reason}${waiting.message ? `: ${waiting.message}` : ''}`,
        {
          op: 'preflight',
          code: 'not-ready',
          hint: `--image with an image of fairlead that the node can pull, instead of ${image}`,
        },
      );
    if (clock.now() > until)
      throw new FairleadError(
        `its pod has not ended after ${PATIENCE_MS / 1000} s (${waiting?.reason ?? status?.phase ?? 'Pending'})`,
        { op: 'preflight', code: 'not-ready', hint: 'check whether the kubelet of the node is running' },
      );
    await pause(clock, POLL_MS, signal);
  }
}

async function readFindings(
  { transport, signal }: RemotePreflightOptions,
  name: string,
): Promise<readonly Finding[]> {
  const path = `/api/v1/namespaces/${PREFLIGHT_NAMESPACE}/pods/${name}/log`;
  const response = await transport({ method: 'GET', path, headers: {}, signal });
  const text = await readBody(response.body);
  try {
    // Warnings of the runtime may come before and after it.
    const { findings } = JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1)) as {
      readonly findings?: readonly Finding[];
    };
    if (response.status === 200 && Array.isArray(findings)) return findings;
  } catch {
    // Not what the program prints: below.
  }
  throw new FairleadError(`its pod printed no findings: ${text.trim().split('\n').at(-1) || '(nothing)'}`, {
    op: 'preflight',
    code: 'ended',
    hint: '--image with an image of this version of fairlead',
  });
}

/** Returns a pod that may look at everything on its node, and starts whatever the node's condition. */
function preflightPod(name: string, nodeName: string, image: string): Pod {
  return {
    metadata: { name, namespace: PREFLIGHT_NAMESPACE },
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
          name: 'preflight',
          image,
          imagePullPolicy: 'IfNotPresent',
          args: ['preflight', '--output', 'json', '--node-root', NODE_ROOT],
          securityContext: { privileged: true, readOnlyRootFilesystem: true },
          volumeMounts: [
            { name: 'node', mountPath: NODE_ROOT, readOnly: true },
            { name: 'bpf', mountPath: '/sys/fs/bpf' },
            { name: 'cgroup', mountPath: NODE_CONTROL_GROUPS, readOnly: true },
          ],
        },
      ],
      volumes: [
        { name: 'node', hostPath: { path: '/' } },
        { name: 'bpf', hostPath: { path: '/sys/fs/bpf' } },
        { name: 'cgroup', hostPath: { path: '/sys/fs/cgroup' } },
      ],
    },
  } as Pod;
}

/** The nodes of a cluster on which agents can run, and the image of those that do. */
export interface PreflightTargets {
  readonly nodes: readonly string[];
  /** Null: no agent runs. */
  readonly image: string | null;
}

export async function preflightTargets(client: Pick<Client, 'list'>): Promise<PreflightTargets> {
  const { items } = await client.list<Node>(RESOURCES.nodes);
  const agents = await client.list<Pod>(RESOURCES.pods, { labelSelector: AGENT_SELECTOR });
  const wanted = Object.entries(AGENT_NODE_LABELS);
  return {
    nodes: items
      .filter(({ metadata }) => wanted.every(([label, value]) => metadata?.labels?.[label] === value))
      .flatMap(({ metadata }) => metadata?.name ?? [])
      .sort((a, b) => a.localeCompare(b, 'en', { numeric: true })),
    image: agents.items[0]?.spec?.containers[0]?.image ?? null,
  };
}
