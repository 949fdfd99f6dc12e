import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EventRecorder } from '../kube/events.ts';
import { RESOURCES, type Resource } from '../kube/types.ts';
import { createMissingRules } from './missing-rules.ts';

/** A change of one resource's rule, and what the events and the problem are after it. */
interface Step {
  readonly resource: Resource;
  readonly lacks: 'list' | 'watch' | null;
  readonly event: string | null;
  readonly problem: string | null;
}

const { nodes, services } = RESOURCES;
const CASES: { name: string; steps: Step[] }[] = [
  {
    name: 'two rules, added one after the other',
    steps: [
      { resource: nodes, lacks: 'list', event: 'Warning MissingPermission: no list', problem: 'no list' },
      {
        resource: services,
        lacks: 'watch',
        event: 'Warning MissingPermission: no watch',
        problem: 'no list; no watch',
      },
      {
        resource: nodes,
        lacks: null,
        event: 'Normal PermissionGranted: allowed to list and watch nodes now',
        problem: 'no watch',
      },
      {
        resource: services,
        lacks: null,
        event: 'Normal PermissionGranted: allowed to list and watch services now',
        problem: null,
      },
    ],
  },
  {
    name: 'a rule that was never missing',
    steps: [{ resource: nodes, lacks: null, event: null, problem: null }],
  },
];

for (const { name, steps } of CASES) {
  test(`missing rules: ${name}`, () => {
    const said: string[] = [];
    const events: EventRecorder = {
      event: ({ metadata }, type, reason, message) =>
        said.push(`${metadata?.name}: ${type} ${reason}: ${message}`),
      flush: async () => {},
    };
    const rules = createMissingRules({ events, node: () => ({ metadata: { name: 'n' } }) });
    for (const { resource, lacks, event, problem } of steps) {
      said.length = 0;
      const rule = { verb: lacks ?? 'list', resource: resource.plural, message: `no ${lacks}` };
      rules.set(resource, lacks && rule);
      assert.deepEqual([said, rules.problem()], [event === null ? [] : [`n: ${event}`], problem]);
    }
  });
}
