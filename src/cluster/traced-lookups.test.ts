import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hostPort } from '../lib/address.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { TraceResult } from '../trace/trace.ts';
import { MAX_LOOKUPS, traceLookups } from './traced-lookups.ts';

const ANSWERED: TraceResult = {
  ...{
    legs: [],
    answer: { kind: 'answered' },
    answeredAfterMs: 1,
    counters: [],
    drops: [],
    sizes: [],
    lostFrames: 0,
    clocks: [],
  },
};
const question = (name: string, result: string) => ({
  ...({ subject: 'name', object: null, text: `${name}: ${result}` } as const),
  ruleOrKey: `DNS query for ${name} to 10.96.0.10`,
  question: { name, server: '10.96.0.10', result },
});
const explanation = (steps: Explanation['steps'], destination: string | null): Explanation =>
  ({ steps, packet: destination === null ? null : { destination } }) as Explanation;
const other = { subject: 'name', object: null, ruleOrKey: '/etc/hosts', text: 'web is 10.0.0.1' } as const;

const ROWS: readonly {
  what: string;
  steps: Explanation['steps'];
  destination: string | null;
  family?: 'ipv4' | 'ipv6';
  sent: readonly string[];
  said: readonly string[];
}[] = [
  {
    what: 'each question, in order; the type of the address that was used',
    steps: [question('a.b.c', 'NXDOMAIN'), question('a.b', 'fd00::1, 10.0.0.1')],
    destination: 'fd00::1',
    sent: ['10.96.0.10:53 AAAA a.b.c', '10.96.0.10:53 AAAA a.b'],
    said: ['NXDOMAIN', 'fd00::1, 10.0.0.1'],
  },
  {
    what: 'without an address, the type of the family that was asked for',
    steps: [question('a.b', 'no answer')],
    destination: null,
    family: 'ipv6',
    sent: ['10.96.0.10:53 AAAA a.b'],
    said: ['no answer'],
  },
  {
    what: 'no question for a name in the hosts file',
    steps: [other],
    destination: '10.0.0.1',
    sent: [],
    said: [],
  },
  {
    what: 'not more than a search path has',
    steps: Array.from({ length: 20 }, () => question('a.b', 'NXDOMAIN')),
    destination: null,
    sent: Array.from({ length: MAX_LOOKUPS }, () => '10.96.0.10:53 A a.b'),
    said: Array.from({ length: MAX_LOOKUPS }, () => 'NXDOMAIN'),
  },
];
for (const { what, steps, destination, family, sent, said } of ROWS) {
  test(`questions that are traced: ${what}`, async () => {
    const seen: string[] = [];
    const lookups = await traceLookups(
      explanation(steps, destination),
      family ?? null,
      async (to, { name, type }) => {
        seen.push(`${hostPort(to)} ${type} ${name}`);
        return ANSWERED;
      },
    );
    assert.deepEqual(seen, sent);
    assert.deepEqual(
      lookups.map((one) => one.said),
      said,
    );
  });
}
