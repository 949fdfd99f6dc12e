import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endpoint, frontend, serviceMap } from '../testing/service-map.ts';
import { HOOKS } from './base-chains.ts';
import type { TableInput } from './restore.ts';
import { createRuleset } from './ruleset.ts';
import { stages } from './staging.ts';

const EMPTY: TableInput = { written: new Map(), deleted: [], hooks: [], unhooked: [] };
const map = serviceMap(
  Array.from({ length: 1500 }, (_, i) =>
    frontend({
      kind: i % 3 ? 'ClusterIP' : 'LoadBalancer',
      service: `s${i}`,
      address: i % 3 ? `10.96.${1 + (i >> 8)}.${i & 255}` : `203.0.${i >> 8}.${i & 255}`,
      port: 80,
      endpoints: i % 5 ? [endpoint(`10.244.0.${i % 200}`, 80)] : [],
    }),
  ),
);
const { nat } = createRuleset(map, 'ipv4', { dropInvalid: true, affinity: true }).render();
const targets = (rules: readonly string[]) =>
  rules.flatMap((line) => /-[jg] (KUBE-\S+)/.exec(line)?.[1] ?? []);

test('a large change is split into small commits that only refer to existing chains, hooks last', () => {
  const parts = stages({ ...EMPTY, written: nat, hooks: HOOKS }, () => false);
  assert.ok(parts.length > 10);
  const existing = new Set<string>();
  for (const { written } of parts) {
    for (const chain of written.keys()) existing.add(chain);
    for (const rules of written.values())
      for (const target of targets(rules)) assert.ok(existing.has(target), target);
  }
  assert.deepEqual([...existing].sort(), [...nat.keys()].sort());
  assert.deepEqual(
    parts.map(({ hooks }) => hooks.length > 0),
    parts.map((_, i) => i === parts.length - 1),
  );
});

test('chains in use are changed together', () => {
  const parts = stages({ ...EMPTY, written: nat }, () => true);
  assert.equal(parts.length, 1);
});

test('chains are deleted only after they are unused', () => {
  const left = new Map(nat);
  for (const { written, deleted } of stages({ ...EMPTY, deleted: [...nat.keys()] }, () => true)) {
    for (const [chain, rules] of written) left.set(chain, rules);
    for (const chain of deleted) left.delete(chain);
    for (const rules of left.values())
      for (const target of targets(rules)) assert.ok(left.has(target), target);
  }
  assert.equal(left.size, 0);
});

test('a small change is one commit', () => {
  const input = { ...EMPTY, written: new Map([...nat].slice(0, 50)) };
  assert.deepEqual(
    stages(input, () => false),
    [input],
  );
});
