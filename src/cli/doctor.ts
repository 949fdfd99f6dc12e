import { FACTS_INSIDE, kernelRelease, machineReport, reportInside } from '../cluster/machine-report.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { formatTable } from './table.ts';

export const command = defineCommand({
  name: 'doctor',
  summary: 'show what this machine can do for local clusters, why not, and the fix',
  description: [
    'Tries what local clusters use, as "up" does: rights, kernel features, programs, file systems, control groups. Leaves nothing behind. The exit status is 1 if no cluster can run.',
  ],
  arguments: [],
  options: FORMAT_OPTIONS,
  examples: ['doctor', 'doctor -o json'],
  async run({ options }, output) {
    if (process.env[FACTS_INSIDE] === '1') {
      output.out(JSON.stringify(reportInside()));
      return 0;
    }
    const facts = { kernel: kernelRelease(), node: process.version, facts: await machineReport() };
    const rows = [['CAPABILITY', 'HERE'], ...facts.facts.map(({ what, state }) => [what, state])];
    const reasons = facts.facts.flatMap(({ what, why, fix }) =>
      why === '' ? [] : [`${what}: ${why}\n${fix === null ? '' : `  fix: ${fix}\n`}`],
    );
    const text = `Linux ${facts.kernel}, Node.js ${facts.node}\n\n`;
    output.out(
      renderFacts(facts, options) ??
        `${text}${formatTable(rows, output.columns)}\n${wrapLines(reasons.join(''), output.columns)}`,
    );
    // The programs, the kernel features and the folder that every cluster needs come first.
    return facts.facts.slice(0, 5).some(({ state }) => state === 'no') ? 1 : 0;
  },
});
