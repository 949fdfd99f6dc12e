import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Explanation } from '../observe/explanation.ts';
import { createExplainer } from './explainer.ts';

/** Answers as agents do: the tables of the origin's node decide. */
function agents(nodeOf: Readonly<Record<string, string>>) {
  const asked: string[] = [];
  const explainer = createExplainer({
    nodes: () => ['node-1', 'node-2'],
    firstNode: () => 'node-1',
    ask: async (node, { from }) => {
      asked.push(node);
      return { missing: [], askNode: nodeOf[from] ?? null } as unknown as Explanation;
    },
    gather: async () => ({ kind: 'failed', reason: 'no fact is needed' }),
  });
  return { asked, explainer };
}

describe('the node that is asked to explain a flow', () => {
  const rows: readonly (readonly [text: string, from: readonly string[], asked: readonly string[]])[] = [
    ['the first node explains what comes from it', ['a', 'a'], ['node-1', 'node-1']],
    ['another node is asked when the first one names it', ['b'], ['node-1', 'node-2']],
    ['and is asked first about the same origin', ['b', 'b'], ['node-1', 'node-2', 'node-2']],
    ['but not about other origins', ['b', 'a'], ['node-1', 'node-2', 'node-1']],
  ];
  for (const [text, origins, wanted] of rows)
    test(text, async () => {
      const { asked, explainer } = agents({ a: 'node-1', b: 'node-2' });
      for (const from of origins) await explainer.explain({ from, to: 'svc/web', family: null, entry: null });
      assert.deepEqual(asked, wanted);
    });

  test('an origin that moves is found again', async () => {
    const places: Record<string, string> = { a: 'node-2' };
    const { asked, explainer } = agents(places);
    const ask = () => explainer.explain({ from: 'a', to: 'svc/web', family: null, entry: null });
    await ask();
    places['a'] = 'node-1';
    await ask();
    assert.deepEqual(asked, ['node-1', 'node-2', 'node-2', 'node-1']);
  });
});
