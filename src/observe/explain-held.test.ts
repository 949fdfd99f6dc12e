import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, view } from './testing/explain-scene.ts';

const rows: [name: string, from: string, held: string, verdict: string][] = [
  ['a pod with too many connections opens no more', 'shop/client-1', 'shop/client-1', 'dropped'],
  ['another pod does', 'shop/client-1', 'shop/web-1', 'delivered'],
  ['a node does', 'node/node-2', 'node-2', 'delivered'],
];
for (const [name, from, held, verdict] of rows) {
  test(name, () => {
    const explanation = ask(view({ isHeld: (pod) => pod === held }), from, 'svc/shop/web:80');
    assert.equal(explanation.verdict, verdict);
    const [cause] = explanation.causes;
    if (verdict === 'dropped') assert.match(`${cause?.text} ${cause?.fix}`, /share.*maxConnectionsPerPod/);
  });
}
