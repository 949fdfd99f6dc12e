import { strict as assert } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { runDeletions } from './deletion-tester.ts';
import { startOracle } from './oracle.ts';
import { runSequences } from './sequence-tester.ts';
import { runVariations, startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

/** The number of answers that differ today, by kind and verb; see README.md. */
const known = JSON.parse(
  readFileSync(new URL('./known-differences.json', import.meta.url), 'utf8'),
) as Record<string, number>;

/** A null in an applied map: upstream owns the map, this server leaves the field out. */
const KNOWN_SEQUENCES = ['null for a value'];

test('every kind answers variations of its objects as kube-apiserver does', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const ours = await startOurServer();
  t.after(() => ours.stop());
  const { counts, findings } = await runVariations(oracle, ours.send);
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

test('a deletion answers and leaves the same, by any options', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const ours = await startOurServer();
  t.after(() => ours.stop());
  const findings = await runDeletions(oracle, ours);
  const others = findings.filter(
    ({ kind, deletion }) => !(kind === 'Event' && /as a dry run/.test(deletion)),
  );
  assert.deepEqual(others, []);
});

test('sequences of applies, updates and patches leave the same objects and owners', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const ours = await startOurServer();
  t.after(() => ours.stop());
  const findings = await runSequences(oracle.send, ours.send);
  const others = findings.filter((one) => !KNOWN_SEQUENCES.includes(one.sequence));
  assert.deepEqual(others, []);
});
