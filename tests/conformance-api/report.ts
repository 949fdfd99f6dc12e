// Prints the differences between the embedded API server and kube-apiserver: node
// tests/conformance-api/report.ts [KIND…]
import { startOracle } from './oracle.ts';
import { runSequences } from './sequence-tester.ts';
import { SEQUENCES } from './sequences.ts';
import { runVariations, startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
if (!assets) {
  process.stderr.write('KUBEBUILDER_ASSETS must name the folder with kube-apiserver and etcd\n');
  process.exit(2);
}
const kinds = process.argv.slice(2);
const oracle = await startOracle(assets);
const ours = await startOurServer();
try {
  if (kinds[0] === 'sequences') {
    const findings = await runSequences(oracle.send, ours.send);
    for (const one of findings) {
      process.stdout.write(`${one.sequence}, step ${one.step}: ${one.difference}\n`);
    }
    process.stdout.write(`# ${findings.length} of ${SEQUENCES.length} sequences differ\n`);
    oracle.stop();
    process.exit(0);
  }
  const { findings, counts } = await runVariations(
    oracle,
    ours.send,
    (kind) => kinds.length === 0 || kinds.includes(kind),
  );
  for (const one of findings) {
    process.stdout.write(`${one.kind} ${one.object} ${one.verb} | ${one.variation} | ${one.difference}\n`);
  }
  let asked = 0;
  let differ = 0;
  let otherWords = 0;
  for (const [key, count] of counts) {
    process.stdout.write(
      `# ${key}: ${count.differ} of ${count.asked} differ, ${count.otherWords} in other words\n`,
    );
    asked += count.asked;
    differ += count.differ;
    otherWords += count.otherWords;
  }
  process.stdout.write(`# all: ${differ} of ${asked} differ, ${otherWords} in other words\n`);
} finally {
  await oracle.stop();
  await ours.stop();
}
process.exit(0);
