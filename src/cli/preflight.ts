import { preflight } from '../agent/preflight.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';

const MARKS = { ok: '✓', note: '!', problem: '✗' } as const;

export const command = defineCommand({
  name: 'preflight',
  summary: 'check whether the agent can run on this node',
  description: [
    'Checks the kernel, rules of other proxies, ports in use and network sysctls, and prints the fix for each problem. Changes nothing. The exit status is 1 if there is a problem.',
  ],
  arguments: [],
  options: FORMAT_OPTIONS,
  async run({ options }, output) {
    requireRoot('preflight');
    const findings = await preflight();
    const facts = renderFacts({ findings }, options);
    if (facts !== null) output.out(facts);
    else {
      for (const { level, what, fix } of findings) {
        const text = `${MARKS[level]} ${what}${fix === null ? '' : `\n    fix: ${fix}`}\n`;
        output.out(wrapLines(text, output.columns));
      }
    }
    return findings.some(({ level }) => level === 'problem') ? 1 : 0;
  },
});
