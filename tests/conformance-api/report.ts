/**
 * Lists the differences between our server's answers and upstream's, recorded ones or with KUBEBUILDER_ASSETS set live
 * ones: node tests/conformance-api/report.ts [--quick] [KIND…]. See README.md.
 */
import { compareRows, findingText, isKnown, knownDifferences } from './comparison.ts';
import { quickRows } from './quick-rows.ts';
import { readRecording } from './recording.ts';
import { startInProcess } from './tester.ts';

const kinds = process.argv.slice(2).filter((word) => word !== '--quick');
const recording = readRecording();
const quick = process.argv.includes('--quick') ? quickRows(recording) : null;
const known = knownDifferences();
const ours = await startInProcess();
const { findings, count } = await compareRows(
  ours.send,
  recording.outcome,
  (row) => (kinds.length === 0 || kinds.includes(row.kind)) && (quick?.has(row) ?? true),
);
for (const one of findings) {
  process.stdout.write(`${isKnown(known, one.row) ? 'known: ' : ''}${findingText(one)}\n`);
}
const byVerb = Map.groupBy(findings, ({ row }) => row.verb);
for (const [verb, list] of byVerb) process.stdout.write(`# ${verb}: ${list.length} differ\n`);
process.stdout.write(`# all: ${findings.length} of ${count} differ\n`);
await ours.stop();
