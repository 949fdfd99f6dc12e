import { strict as assert } from 'node:assert';
import { after, before, test } from 'node:test';
import { TAKES_FULL_PRODUCT } from '../testing/pairwise.ts';
import { outcomeDifference } from './compare.ts';
import { type Finding, findingText, isKnown, knownDifferences, knownRows } from './comparison.ts';
import { runDeletions } from './deletion-tester.ts';
import { type Oracle, startOracle } from './oracle.ts';
import { outcomeOf } from './outcome.ts';
import { isInShare, quickRows } from './quick-rows.ts';
import { readRecording } from './recording.ts';
import { type Row, rowKey, runRows, type Visit } from './rows.ts';
import { runSequences } from './sequence-tester.ts';
import { startInProcess, startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

/**
 * Of the rows that recorded.test.ts compares with the recorded answers, the live comparison takes a share, which shows that
 * the recording is one of this kube-apiserver. The full product has all rows of the recording.
 */
const LIVE = { name: 'live', oneOf: 12 };

/** One for all tests: its start takes longer than most of what it is asked. */
let oracle: Oracle;
before(async () => {
  if (skip === false) oracle = await startOracle(assets ?? '');
});
after(() => oracle?.stop());

/** A null in an applied map: upstream owns the map, this server leaves the field out. */
const KNOWN_SEQUENCES = ['null for a value'];

test('a deletion answers and leaves the same, by any options', { skip }, async (t) => {
  const ours = await startOurServer();
  t.after(() => ours.stop());
  const { findings, count } = await runDeletions(oracle, ours);
  t.diagnostic(`${count} deletions`);
  const others = findings.filter(
    ({ kind, deletion }) => !(kind === 'Event' && /as a dry run/.test(deletion)),
  );
  assert.deepEqual(others, []);
});

test('sequences of applies, updates and patches leave the same objects and owners', { skip }, async (t) => {
  const ours = await startOurServer();
  t.after(() => ours.stop());
  const findings = await runSequences(oracle.send, ours.send);
  const others = findings.filter((one) => !KNOWN_SEQUENCES.includes(one.sequence));
  assert.deepEqual(others, []);
});

// Last: no controller ends the namespaces that it deletes.
test('objects and their variations are answered as kube-apiserver does, and the recording is true', {
  skip,
}, async (t) => {
  const ours = await startInProcess();
  t.after(() => ours.stop());
  const recording = readRecording();
  const quick = quickRows(recording);
  const known = knownDifferences();
  const selected = (row: Row) =>
    TAKES_FULL_PRODUCT || isKnown(known, row) || (quick.has(row) && isInShare(row, LIVE));
  let count = 0;
  const findings: Finding[] = [];
  const untrue: Finding[] = [];
  const visit: Visit = (row, [live, own]) => {
    if (!live || !own) return;
    count++;
    const isApply = row.verb.startsWith('apply');
    const upstream = outcomeOf(live, isApply);
    const difference = outcomeDifference(upstream, outcomeOf(own, isApply));
    if (difference !== null && quick.has(row)) findings.push({ row, difference });
    const drift = outcomeDifference(recording.outcome(row), upstream);
    if (drift !== null) untrue.push({ row, difference: drift });
  };
  const refused = await runRows([oracle.send, ours.send], visit, { selected });
  t.diagnostic(`${count} of ${recording.rows.length} answers`);
  assert.deepEqual(refused, []);
  await t.test('our answers', () => {
    assert.deepEqual(findings.filter(({ row }) => !isKnown(known, row)).map(findingText), []);
    const gone = knownRows(known).filter((key) => !findings.some(({ row }) => rowKey(row) === key));
    assert.deepEqual(gone, [], 'known-differences.json lists rows that no longer differ');
  });
  await t.test('the recorded answers', () => {
    assert.deepEqual(
      untrue.map(findingText),
      [],
      'kube-apiserver answers otherwise than recorded: run record.ts',
    );
  });
});
