/**
 * Records kube-apiserver's answers to all variations: KUBEBUILDER_ASSETS=DIR node tests/conformance-api/record.ts.
 * See README.md.
 */
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { oracleVersion, startOracle } from './oracle.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import { formatRecording, RECORDING, writeRecording } from './recording.ts';
import { type Row, runRows } from './rows.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
if (!assets) {
  process.stderr.write('KUBEBUILDER_ASSETS must name the folder with kube-apiserver and etcd\n');
  process.exit(2);
}
const oracle = await startOracle(assets);
const outcomes = new Map<Row, Outcome>();
try {
  const refused = await runRows([oracle.send], (row, [answer]) => {
    if (answer) outcomes.set(row, outcomeOf(answer, row.verb.startsWith('apply')));
  });
  for (const text of refused) process.stderr.write(`refused: ${text}\n`);
} finally {
  await oracle.stop();
}
const result = writeRecording(formatRecording(oracleVersion(assets), outcomes));
const { size } = statSync(RECORDING);
process.stdout.write(`${fileURLToPath(RECORDING)}: ${result}, ${outcomes.size} rows, ${size} bytes\n`);
process.exit(0);
