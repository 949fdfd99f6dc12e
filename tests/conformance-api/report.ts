/**
 * Lists the differences between our server's answers and upstream's, recorded ones or with KUBEBUILDER_ASSETS set live
 * ones: node tests/conformance-api/report.ts [KIND…]. See README.md.
 */
import { compareRows, findingText, isKnown, knownDifferences } from './comparison.ts';
import { readRecording } from './recording.ts';
import { startInProcess } from './tester.ts';

const kinds = process.argv.slice(2);
const recording = readRecording();
const known = knownDifferences();
const ours = await startInProcess();
const { findings, count } = await compareRows(
  ours.send,
  recording.outcome,
  ({ kind }) => kinds.length === 0 || kinds.includes(kind),
);
for (const one of findings) {
  process.stdout.write(`${isKnown(known, one.row) ? 'known: ' : ''}${findingText(one)}\n`);
}
const byVerb = Map.groupBy(findings, ({ row }) => row.verb);
for (const [verb, list] of byVerb) process.stdout.write(`# ${verb}: ${list.length} differ\n`);
process.stdout.write(`# all: ${findings.length} of ${count} differ\n`);
await ours.stop();
