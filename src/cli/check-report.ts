import type { FlowResult } from '../conformance/run.ts';
import type { Drift, Mode } from '../dataplane/dataplane.ts';
import type { Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { paint } from './terminal.ts';

/** Renders a flow that did not behave as expected. */
export function differenceText(result: FlowResult): string {
  const { flow, mode, expected, seen, decided, explained, sourceProblem } = result;
  return `✗ ${flow} (${mode})
    expected   ${expected}
    seen       ${seen}
    decided    ${decided}
    explained  ${explained}${sourceProblem === null ? '' : `\n    source     ${sourceProblem}`}
`;
}

/** Prints the result of a check. */
export function report(
  output: Output,
  results: readonly FlowResult[],
  drifts: readonly (Drift & { node: string })[],
  modes: readonly Mode[],
  seconds: number,
): void {
  for (const { node, object, kind } of drifts)
    output.out(wrapLines(`✗ ${node}: ${object} is ${kind}\n`, output.columns));
  const good = results.filter(({ ok }) => ok).length;
  const different = Map.groupBy(
    results.filter(({ difference }) => difference !== null),
    ({ mode, difference }) => `${mode}: ${difference}`,
  );
  for (const [text, flows] of different)
    output.out(wrapLines(`  ${flows.length} flows differ as documented: ${text}\n`, output.columns));
  const isGood = good === results.length && drifts.length === 0;
  const counts = isGood
    ? `all ${results.length} flows behaved as expected`
    : `${results.length - good} of ${results.length} flows did not behave as expected`;
  output.out(
    `${isGood ? paint(output, 'good', '✓') : paint(output, 'bad', '✗')} ${counts} (${modes.join(', ')}; ${seconds.toFixed(1)} s)\n`,
  );
}
