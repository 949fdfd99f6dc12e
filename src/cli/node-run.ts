import { findKubeconfigContext } from '../cluster/kubeconfig-contexts.ts';
import { type NodeRunOptions, type NodeTargets, nodeTargets } from '../cluster/node-pods.ts';
import { createClient } from '../kube/client.ts';
import { kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Output } from './command.ts';
import { suggestion, text, usageError } from './options.ts';
import { showProgress } from './terminal.ts';
import { version } from './version.ts';

/** The options of commands that run in a pod on the nodes of a cluster. */
export const NODE_RUN_OPTIONS = {
  kubeconfig: text('FILE', 'the nodes of the cluster of this kubeconfig', { main: true }),
  context: text('NAME', 'its context; default: the current one'),
  node: text('NODE', 'only this node of the cluster'),
  image: text('IMAGE', "the pods' image; default: that of the agents, else that of this version"),
} as const;

export interface NodeRunValues {
  readonly kubeconfig: string | null;
  readonly context: string | null;
  readonly node: string | null;
  readonly image: string | null;
  readonly output: 'text' | 'json' | 'yaml';
}

/** Reports whether the command is for the nodes of a cluster. Throws FairleadError if only some of its options say so. */
export function isForNodes(command: string, { kubeconfig, context, ...rest }: NodeRunValues): boolean {
  if (kubeconfig !== null || context !== null) return true;
  for (const name of ['node', 'image'] as const)
    if (rest[name] !== null)
      throw usageError(command, `--${name} is for the nodes of a cluster: add --kubeconfig or --context`);
  return false;
}

/** The work of a command on nodes. */
export interface NodeRun {
  /** "preflight" */
  readonly command: string;
  /** Of its pods. */
  readonly namespace: string;
  /** "3 of 4 nodes checked" */
  readonly done: string;
}

/**
 * Runs a command's pods on the nodes of a cluster. The namespace of the pods is removed at the end, also after Ctrl-C;
 * after a second one the process ends at once.
 */
export async function runForNodes<T>(
  { command, namespace, done }: NodeRun,
  values: NodeRunValues,
  output: Output,
  run: (options: NodeRunOptions & { readonly onNode: () => void }, targets: NodeTargets) => Promise<T>,
): Promise<T> {
  const op = `fairlead ${command}`;
  const place = findKubeconfigContext({ file: values.kubeconfig, context: values.context }, process.env);
  if (place === null)
    throw new FairleadError('no kubeconfig has a current context', {
      op,
      code: 'no-cluster',
      hint: 'use --kubeconfig FILE',
    });
  const onProblem = (message: string) => output.err(`fairlead: ${message}\n`);
  const source = kubeconfigSource(place.file, { server: null, now: Date.now, onProblem }, place.context);
  const transport = httpTransport(source);
  const interrupt = new AbortController();
  const stop = () => {
    output.err(`fairlead: removing namespace ${namespace}\n`);
    interrupt.abort(new FairleadError('interrupted', { op, code: 'interrupted' }));
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    const client = createClient(transport, `fairlead-${command}`);
    const targets = await nodeTargets(client);
    const nodes = values.node === null ? targets.nodes : [known(op, values.node, targets.nodes)];
    let ended = 0;
    const progress = showProgress(output, systemClock, () => `${ended} of ${nodes.length} nodes ${done}`);
    return await run(
      {
        client,
        transport,
        image: values.image ?? targets.image ?? `fairlead:${version}`,
        nodes,
        clock: systemClock,
        signal: interrupt.signal,
        onNode: () => void ended++,
      },
      targets,
    ).finally(() => progress.end());
  } finally {
    transport.close();
    process.off('SIGINT', stop).off('SIGTERM', stop);
  }
}

function known(op: string, node: string, nodes: readonly string[]): string {
  if (nodes.includes(node)) return node;
  throw new FairleadError(`the cluster has no Linux node ${node}${suggestion(node, nodes)}`, {
    op,
    code: 'no-node',
    hint: `use one of ${nodes.join(', ')}`,
  });
}

/** Renders texts of nodes, those that are the same on several nodes once. */
export function nodesText(texts: readonly (readonly [node: string, text: string])[]): string {
  const groups = new Map<string, string[]>();
  for (const [node, text] of texts) groups.set(text, [...(groups.get(text) ?? []), node]);
  return [...groups].map(([text, nodes]) => `${nodes.join(', ')}\n${indented(text)}`).join('\n');
}

const indented = (text: string): string => text.replaceAll(/^(?=.)/gm, '  ');
