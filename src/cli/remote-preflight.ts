import { type NodePreflight, PREFLIGHT_NAMESPACE, preflightNodes } from '../cluster/remote-preflight.ts';
import type { Output } from './command.ts';
import { withDnsFindings } from './dns-findings.ts';
import { wrapLines } from './help-text.ts';
import { type NodeRun, type NodeRunValues, nodesText, runForNodes } from './node-run.ts';
import { renderFacts } from './output-format.ts';
import { findingText } from './preflight-text.ts';

const RUN: NodeRun = { command: 'preflight', namespace: PREFLIGHT_NAMESPACE, done: 'checked' };

/** Checks the nodes of a cluster, and whether their kubelets give pods the address of its DNS. */
export async function preflightRemotely(values: NodeRunValues, output: Output): Promise<number> {
  const results = await runForNodes(RUN, values, output, async (options) =>
    withDnsFindings(options.client, await preflightNodes(options), options.signal),
  );
  output.out(renderFacts({ nodes: results }, values) ?? wrapLines(resultsText(results), output.columns));
  const isFine = ({ findings, problem }: NodePreflight) =>
    problem === null && findings.every(({ level }) => level !== 'problem');
  return results.every(isFine) ? 0 : 1;
}

/** Renders the results, those that are the same on several nodes once. */
export function resultsText(results: readonly NodePreflight[]): string {
  return nodesText(
    results.map(({ node, findings, problem }) => [
      node,
      problem === null ? findings.map(findingText).join('') : `✗ not checked: ${problem}\n`,
    ]),
  );
}
