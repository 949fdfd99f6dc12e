import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { compareRows, findingText, isKnown, knownDifferences, knownRows } from './comparison.ts';
import { quickRows } from './quick-rows.ts';
import { readRecording } from './recording.ts';
import { rowKey } from './rows.ts';
import { startInProcess } from './tester.ts';

test('objects and their variations are answered as kube-apiserver answered them', async (t) => {
  const recording = readRecording();
  const ours = await startInProcess();
  t.after(() => ours.stop());
  const selected = quickRows(recording);
  const { findings, count } = await compareRows(ours.send, recording.outcome, (row) => selected.has(row));
  t.diagnostic(`${count} of ${recording.rows.length} answers of ${recording.version}`);
  const known = knownDifferences();
  const unknown = findings.filter(({ row }) => !isKnown(known, row));
  assert.ok(
    unknown.length === 0,
    `${unknown.length} of ${count} answers differ:\n${unknown.slice(0, MAX_SHOWN).map(findingText).join('\n')}`,
  );
  const gone = knownRows(known).filter((key) => !findings.some(({ row }) => rowKey(row) === key));
  assert.deepEqual(gone, [], 'known-differences.json lists rows that no longer differ');
});

const MAX_SHOWN = 100;
