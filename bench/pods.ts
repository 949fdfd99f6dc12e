/**
 * Starts and stops 200 pods on one node, all at once, repeatedly, and shows the time per pod. After every
 * round no state of them may remain: no process, network device, mount, control group, file, or address;
 * and no address may have been two pods' at once. Needs root. Run: node bench/pods.ts [pods] [rounds]
 * (default 200 and 3). Results: bench/results/pods.md.
 */
import { cpus, release } from 'node:os';
import { churnPods, podLeftovers } from '../tests/testing/pod-churn.ts';
import { startPodNode } from '../tests/testing/pod-node.ts';

const count = Number(process.argv[2] ?? 200);
const rounds = Number(process.argv[3] ?? 3);

const node = await startPodNode();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void node.close().finally(() => process.exit(1)));
}
try {
  await node.startAgent();
  // The first pods warm caches up.
  await churnPods(node, 5, 'warm');
  const rows = [
    ['round', 'start, each', 'start, median', 'start, 99 %', 'one alone', 'stop, each', 'left behind'],
  ];
  for (let round = 1; round <= rounds; round++) {
    const alone = await churnPods(node, 1, `alone-${round}`);
    const { started, allStarted, allStopped } = await churnPods(node, count, `pod-${round}`);
    const left = podLeftovers(node);
    for (const what of left) console.error(what);
    const ms = (value: number | undefined) => `${(value ?? Number.NaN).toFixed(0)} ms`;
    rows.push([
      String(round),
      ms(allStarted / count),
      ms(started[count >> 1]),
      ms(started[Math.floor(count * 0.99)]),
      ms(alone.allStarted),
      ms(allStopped / count),
      left.length === 0 ? 'nothing' : String(left.length),
    ]);
    if (left.length > 0) process.exitCode = 1;
  }
  console.log(`${count} pods at once, ${cpus().length} processors, Linux ${release()}\n`);
  console.log(
    rows
      .map((row) => `| ${row.join(' | ')} |`)
      .toSpliced(1, 0, `|${' --- |'.repeat(7)}`)
      .join('\n'),
  );
} finally {
  await node.close();
}
