import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { healthAnswer, type ProxyHealth, withProblems } from './status-servers.ts';

const HEALTH: ProxyHealth = { healthy: true, live: true, lastUpdated: 1, families: ['ipv4'], problem: null };

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

const TAINT = [{ key: 'ToBeDeletedByClusterAutoscaler', effect: 'NoSchedule' as const }];
const NO_NODE = { healthy: false, problem: 'no such Node' };

/** The state of a node, and the answers of /healthz and /livez: status, `healthy` and `problem`. */
const ANSWERS: {
  name: string;
  health: Partial<ProxyHealth>;
  isLeaving?: true;
  healthz: unknown[];
  livez: unknown[];
}[] = [
  { name: 'healthy', health: {}, healthz: [200, true, undefined], livez: [200, true, undefined] },
  {
    name: 'late',
    health: { healthy: false, live: false },
    healthz: [503, false, undefined],
    livez: [503, false, undefined],
  },
  {
    name: 'without a Node: a restart does not help',
    health: NO_NODE,
    healthz: [503, false, 'no such Node'],
    livez: [200, true, 'no such Node'],
  },
  {
    name: 'without a permission: it forwards by what it knows',
    health: { problem: 'not allowed to list nodes' },
    healthz: [200, true, 'not allowed to list nodes'],
    livez: [200, true, 'not allowed to list nodes'],
  },
  {
    name: 'about to be removed',
    health: {},
    isLeaving: true,
    healthz: [503, true, undefined],
    livez: [200, true, undefined],
  },
];

for (const { name, health, isLeaving, healthz, livez } of ANSWERS) {
  test(`health of a node: ${name}`, () => {
    const options = {
      clock: manualClock(),
      health: () => ({ ...HEALTH, ...health }),
      node: () => (isLeaving ? { spec: { taints: TAINT } } : {}),
    };
    const answer = (path: string) => {
      const { code, body } = healthAnswer(options, path);
      const { healthy, problem } = JSON.parse(body) as { healthy: boolean; problem?: string };
      return [code, healthy, problem];
    };
    assert.deepEqual([answer('/healthz'), answer('/livez')], [healthz, livez]);
  });
}
