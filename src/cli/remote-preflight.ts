import { findKubeconfigContext } from '../cluster/kubeconfig-contexts.ts';
import {
  type NodePreflight,
  PREFLIGHT_NAMESPACE,
  preflightNodes,
  preflightTargets,
} from '../cluster/remote-preflight.ts';
import { createClient } from '../kube/client.ts';
import { kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { suggestion } from './options.ts';
import { renderFacts } from './output-format.ts';
import { findingText } from './preflight-text.ts';
import { showProgress } from './terminal.ts';
import { version } from './version.ts';

export interface RemotePreflightValues {
  readonly kubeconfig: string | null;
  readonly context: string | null;
  readonly node: string | null;
  readonly image: string | null;
  readonly output: 'text' | 'json' | 'yaml';
}

/**
 * Checks the nodes of a cluster. The namespace of the pods is removed at the end, also after Ctrl-C; after a second one
 * the process ends at once.
 */
export async function preflightRemotely(options: RemotePreflightValues, output: Output): Promise<number> {
  const place = findKubeconfigContext({ file: options.kubeconfig, context: options.context }, process.env);
  if (place === null)
    throw new FairleadError('there is no kubeconfig with a current context', {
      op: 'fairlead preflight',
      code: 'no-cluster',
      hint: 'use --kubeconfig FILE',
    });
  const onProblem = (message: string) => output.err(`fairlead: ${message}\n`);
  const source = kubeconfigSource(place.file, { server: null, now: Date.now, onProblem }, place.context);
  const transport = httpTransport(source);
  const interrupt = new AbortController();
  const stop = () => {
    output.err(`fairlead: removing namespace ${PREFLIGHT_NAMESPACE}\n`);
    interrupt.abort(new FairleadError('interrupted', { op: 'fairlead preflight', code: 'interrupted' }));
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    const client = createClient(transport, 'fairlead-preflight');
    const targets = await preflightTargets(client);
    const nodes = options.node === null ? targets.nodes : [known(options.node, targets.nodes)];
    let checked = 0;
    const progress = showProgress(output, systemClock, () => `${checked} of ${nodes.length} nodes checked`);
    const results = await preflightNodes({
      client,
      transport,
      image: options.image ?? targets.image ?? `fairlead:${version}`,
      nodes,
      clock: systemClock,
      signal: interrupt.signal,
      onNode: () => void checked++,
    }).finally(() => progress.end());
    output.out(renderFacts({ nodes: results }, options) ?? wrapLines(resultsText(results), output.columns));
    const isFine = ({ findings, problem }: NodePreflight) =>
      problem === null && findings.every(({ level }) => level !== 'problem');
    return results.every(isFine) ? 0 : 1;
  } finally {
    transport.close();
    process.off('SIGINT', stop).off('SIGTERM', stop);
  }
}

function known(node: string, nodes: readonly string[]): string {
  if (nodes.includes(node)) return node;
  throw new FairleadError(`the cluster has no Linux node ${node}${suggestion(node, nodes)}`, {
    op: 'fairlead preflight',
    code: 'no-node',
    hint: `use one of ${nodes.join(', ')}`,
  });
}

/** Renders the results, those that are the same on several nodes once. */
export function resultsText(results: readonly NodePreflight[]): string {
  const groups = new Map<string, string[]>();
  for (const { node, findings, problem } of results) {
    const text = problem === null ? findings.map(findingText).join('') : `✗ not checked: ${problem}\n`;
    groups.set(text, [...(groups.get(text) ?? []), node]);
  }
  return [...groups].map(([text, nodes]) => `${nodes.join(', ')}\n${indented(text)}`).join('\n');
}

const indented = (text: string): string => text.replaceAll(/^(?=.)/gm, '  ');
