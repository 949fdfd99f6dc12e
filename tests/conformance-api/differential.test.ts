import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { startOracle } from './oracle.ts';
import { ourServer, runVariations } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

/** How many answers differ today, by kind and verb; see README.md. */
const known = JSON.parse(
  readFileSync(new URL('./known-differences.json', import.meta.url), 'utf8'),
) as Record<string, number>;

test('every kind answers variations of its objects as kube-apiserver does', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const { counts, findings } = await runVariations(oracle, ourServer());
  for (const [key, count] of counts) {
    await t.test(key, () => {
      const shown = findings
        .filter((one) => `${one.kind} ${one.verb}` === key)
        .map((one) => `${one.object}: ${one.variation}: ${one.difference}`);
      assert.ok(
        count.differ <= (known[key] ?? 0),
        `${count.differ} of ${count.asked} differ, ${known[key] ?? 0} are known:\n${shown.join('\n')}`,
      );
    });
  }
});
