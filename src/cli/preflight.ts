import { preflight } from '../agent/preflight.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { defineCommand } from './command.ts';
import { flag } from './options.ts';

const MARKS = { ok: '✓', note: '!', problem: '✗' } as const;

export const command = defineCommand({
  name: 'preflight',
  summary: 'check whether the agent can run on this node',
  description: [
    'Checks the kernel, rules of other proxies, ports in use and network sysctls, and prints the fix for each problem. Changes nothing. The exit status is 1 if there is a problem.',
  ],
  arguments: [],
  options: { json: flag('print one JSON object') },
  async run({ options }, output) {
    requireRoot('preflight');
    const findings = await preflight();
    if (options.json) output.out(`${JSON.stringify({ findings })}\n`);
    else {
      for (const { level, what, fix } of findings) {
        output.out(`${MARKS[level]} ${what}${fix === null ? '' : `\n    fix: ${fix}`}\n`);
      }
    }
    return findings.some(({ level }) => level === 'problem') ? 1 : 0;
  },
});
