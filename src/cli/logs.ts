import { openCluster } from '../cluster/cluster-access.ts';
import { createClient, hasReason, pathOf, readBody } from '../kube/client.ts';
import { selects } from '../kube/selector.ts';
import { httpTransport, type Transport } from '../kube/transport.ts';
import { type KubeObject, type LabelSelector, type Pod, RESOURCES, type Resource } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { defineCommand, type Output } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag, suggestion, text, usageError } from './options.ts';

export const command = defineCommand({
  name: 'logs',
  summary: 'print what a pod has written',
  description: [
    'Prints the log of a container of a pod. A Deployment, StatefulSet, DaemonSet, ReplicaSet or Job stands for its oldest pod.',
  ],
  arguments: [
    {
      name: 'POD',
      help: 'NAME, NAMESPACE/NAME, or a workload: deployment/NAME, NAMESPACE/deployment/NAME',
    },
  ],
  options: {
    container: text('CONTAINER', 'a container of the pod; default: the first', { short: 'c' }),
    follow: flag('continue with what the pod writes, until it ends or Ctrl-C', { short: 'f', main: true }),
    previous: flag("the log of the container's run before the last restart", { short: 'p' }),
    tail: text('N', 'only the last N lines'),
    timestamps: flag('the time before each line'),
    name: NAME_OPTION,
  },
  examples: ['logs client', 'logs -f deployment/hello', 'logs -p shop/cart --tail 20'],
  asUser: ({ options }) => ({ cluster: options.name }),
  async run({ options, args: [target = ''] }, output) {
    if (options.tail !== null && !/^\d{1,9}$/.test(options.tail))
      throw usageError('logs', `--tail takes a number, not ${JSON.stringify(options.tail)}`);
    const { credentials } = await openCluster(options.name);
    const transport = httpTransport(credentials);
    try {
      const { namespace, name, containers } = await findPod(transport, target);
      const container = options.container ?? containers[0] ?? '';
      if (!containers.includes(container))
        throw new FairleadError(
          `no such container in pod ${name}: ${container}${suggestion(container, containers)}`,
          { op: 'fairlead logs', code: 'no-container', hint: `use -c with one of ${containers.join(', ')}` },
        );
      const query = new URLSearchParams({
        container,
        ...(options.follow ? { follow: 'true' } : {}),
        ...(options.previous ? { previous: 'true' } : {}),
        ...(options.timestamps ? { timestamps: 'true' } : {}),
        ...(options.tail === null ? {} : { tailLines: options.tail }),
      });
      await printLog(transport, `${pathOf(RESOURCES.pods, namespace, name, 'log')}?${query}`, output);
      return 0;
    } finally {
      transport.close();
    }
  },
});

/** Prints the answer as it arrives, without decoding it, until it or the output ends. */
async function printLog(transport: Transport, path: string, output: Output): Promise<void> {
  const { status, body } = await transport({ method: 'GET', path, headers: {}, signal: output.unread });
  if (status !== 200) throw refusal(await readBody(body));
  const decoder = new TextDecoder();
  try {
    for await (const chunk of body) output.raw(decoder.decode(chunk, { stream: true }));
  } catch (error) {
    if (!output.unread.aborted) throw error;
  }
}

function refusal(text: string): FairleadError {
  const { message = text } = readStatus(text);
  return new FairleadError(message, {
    op: 'fairlead logs',
    code: 'refused',
    hint: 'fairlead status names what keeps a container from running',
  });
}

function readStatus(text: string): { readonly message?: string } {
  try {
    return JSON.parse(text) as { message?: string };
  } catch {
    // An answer that is not a Status is shown as it is.
    return {};
  }
}

const WORKLOADS = {
  deployment: RESOURCES.deployments,
  statefulset: RESOURCES.statefulSets,
  daemonset: RESOURCES.daemonSets,
  replicaset: RESOURCES.replicaSets,
  job: RESOURCES.jobs,
} as const;
type WorkloadKind = keyof typeof WORKLOADS;

/** The names that kubectl takes. */
const SHORT_NAMES: Readonly<Record<WorkloadKind, readonly string[]>> = {
  deployment: ['deployment', 'deployments', 'deploy'],
  statefulset: ['statefulset', 'statefulsets', 'sts'],
  daemonset: ['daemonset', 'daemonsets', 'ds'],
  replicaset: ['replicaset', 'replicasets', 'rs'],
  job: ['job', 'jobs'],
};

interface FoundPod {
  readonly namespace: string;
  readonly name: string;
  readonly containers: readonly string[];
}

/** Finds the pod, or the oldest pod of the workload, that the argument names. Throws FairleadError if there is none. */
async function findPod(transport: Transport, target: string): Promise<FoundPod> {
  const client = createClient(transport, 'fairlead-logs');
  const { namespace, kind, name } = parseTarget(target);
  const pods = (await client.list(RESOURCES.pods, { namespace })).items;
  if (kind === null) {
    const pod = pods.find(({ metadata }) => metadata?.name === name);
    if (pod) return found(pod);
    const names = pods.map(({ metadata }) => metadata?.name ?? '');
    throw new FairleadError(`no such pod in namespace ${namespace}: ${name}${suggestion(name, names)}`, {
      op: 'fairlead logs',
      code: 'no-pod',
      hint: 'write NAMESPACE/POD for a pod of another namespace',
    });
  }
  const workload = await client
    .get<Workload>(WORKLOADS[kind] as Resource<Workload>, name, namespace)
    .catch((error: unknown) => {
      if (!hasReason(error, 'NotFound')) throw error;
      throw new FairleadError(`no such ${kind} in namespace ${namespace}: ${name}`, {
        op: 'fairlead logs',
        code: 'not-found',
      });
    });
  const [oldest] = pods
    .filter(({ metadata }) =>
      selects(workload.spec?.selector, metadata?.labels as Record<string, string> | undefined),
    )
    .toSorted((a, b) =>
      String(a.metadata?.creationTimestamp).localeCompare(String(b.metadata?.creationTimestamp)),
    );
  if (oldest) return found(oldest);
  throw new FairleadError(`${kind} ${name} has no pods`, { op: 'fairlead logs', code: 'no-pod' });
}

interface Workload extends KubeObject {
  readonly spec?: { readonly selector?: LabelSelector };
}

/** Parses NAME, NAMESPACE/NAME, KIND/NAME and NAMESPACE/KIND/NAME. Throws FairleadError "usage". */
function parseTarget(target: string): {
  readonly namespace: string;
  readonly kind: WorkloadKind | null;
  readonly name: string;
} {
  const words = target.split('/');
  const name = words.pop() ?? '';
  const kind = kindOf(words.at(-1) ?? '');
  if (kind !== null) words.pop();
  const [namespace = 'default', ...others] = words;
  if (name === '' || namespace === '' || others.length > 0)
    throw usageError('logs', `not a pod or workload: ${JSON.stringify(target)}`);
  return { namespace, kind, name };
}

function kindOf(word: string): WorkloadKind | null {
  const kinds = Object.keys(WORKLOADS) as WorkloadKind[];
  return kinds.find((kind) => SHORT_NAMES[kind].includes(word)) ?? null;
}

function found({ metadata, spec }: Pod): FoundPod {
  return {
    namespace: metadata?.namespace ?? '',
    name: metadata?.name ?? '',
    containers: [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])].map(({ name }) => name),
  };
}
