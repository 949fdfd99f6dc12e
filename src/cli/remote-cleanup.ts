import type { CleanupStep } from '../agent/cleanup.ts';
import { type NodeResult, runOnNodes } from '../cluster/node-pods.ts';
import { CLEANUP, CLEANUP_NAMESPACE, refuseRunningAgents } from '../cluster/remote-cleanup.ts';
import type { Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { type NodeRun, type NodeRunValues, nodesText, runForNodes } from './node-run.ts';
import { renderFacts } from './output-format.ts';

const RUN: NodeRun = { command: 'cleanup', namespace: CLEANUP_NAMESPACE, done: 'cleaned up' };

/** Removes what agents wrote on the nodes of a cluster. Throws FairleadError ("agent-running") if agents run there. */
export async function cleanupRemotely(values: NodeRunValues, output: Output): Promise<number> {
  const results = await runForNodes(RUN, values, output, async ({ onNode, ...options }, targets) => {
    refuseRunningAgents(targets, options.nodes);
    return await runOnNodes(CLEANUP, options, onNode);
  });
  const nodes = results.map(({ node, result, problem }) => ({ node, steps: result ?? [], problem }));
  output.out(renderFacts({ nodes }, values) ?? wrapLines(cleanupText(results), output.columns));
  return results.every(({ result }) => result?.every(({ error }) => error === null)) ? 0 : 1;
}

/** Renders the results, those that are the same on several nodes once. */
export function cleanupText(results: readonly NodeResult<readonly CleanupStep[]>[]): string {
  return nodesText(
    results.map(({ node, result, problem }) => [
      node,
      result === null ? `✗ not cleaned up: ${problem}\n` : result.map(stepText).join(''),
    ]),
  );
}

/** Renders a step with its error and hint. */
export const stepText = ({ what, error, hint }: CleanupStep): string =>
  `${error === null ? `✓ ${what}` : `✗ ${what}: ${error}`}\n${hint === null ? '' : `  try: ${hint}\n`}`;
