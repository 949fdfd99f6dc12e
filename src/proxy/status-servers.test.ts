import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ProxyHealth, withProblems } from './status-servers.ts';

const HEALTH: ProxyHealth = { healthy: true, lastUpdated: 1, families: ['ipv4'], problem: null };

const CASES: { name: string; problem: string | null; more: (string | null)[]; wanted: string | null }[] = [
  { name: 'none', problem: null, more: [null, null], wanted: null },
  { name: 'its own', problem: 'a', more: [null], wanted: 'a' },
  { name: 'only others', problem: null, more: [null, 'b'], wanted: 'b' },
  { name: 'its own and others', problem: 'a', more: ['b', null, 'c'], wanted: 'a; b; c' },
];

for (const { name, problem, more, wanted } of CASES) {
  test(`problems of a proxy's health: ${name}`, () => {
    const health = withProblems({ ...HEALTH, problem }, ...more);
    // Problems that are not the proxy's own do not take the node out of service.
    assert.deepEqual(health, { ...HEALTH, problem: wanted });
  });
}
