import { parseArgs } from 'node:util';
import { TYPE } from '../src/dns/message.ts';
import { Undo } from '../src/network/testing/packets.ts';
import { busyKernel } from '../tests/testing/busy-kernel.ts';
import {
  type NamedPod,
  type NamedScene,
  namedPolicy,
  outsideAddress,
  record,
  startNamedScene,
} from '../tests/testing/named-scene.ts';
import { printTable } from './print-table.ts';

/**
 * Measures names in network policies: how many first packets after an answer pass, and how much longer an answer takes. Server,
 * clients and the name server outside share one process.
 *
 * node bench/policy-names.ts [--first-packets N] [--answers N]
 */
const { values } = parseArgs({
  options: {
    'first-packets': { type: 'string', default: '100000' },
    answers: { type: 'string', default: '3000' },
  },
});
/** What one pod may have at a time: two addresses of each of 1,000 names. */
const NAMES_OF_POD = 1000;
const AT_ONCE = 40;

const firstPackets = Number(values['first-packets']);
const pods = Math.max(2, Math.ceil(firstPackets / (2 * NAMES_OF_POD)));
const undo = new Undo();
try {
  const keys = Array.from({ length: pods }, (_, i) => `x/a${i}`);
  const scene = await startNamedScene(undo, ['y/c', ...keys]);
  scene.zone = (name, type) => {
    const n = Number(/^n(\d+)\./.exec(name)?.[1] ?? 0);
    return type === TYPE.A
      ? [record(name, outsideAddress(2 * n), 300), record(name, outsideAddress(2 * n + 1), 300)]
      : [];
  };
  await measureAnswers(scene);
  await scene.setPolicies(...keys.map((key, i) => namedPolicy(key.slice(2), '*.example.com:443', `a${i}`)));
  await countFirstPackets(scene, keys);
} finally {
  await undo.run();
}

function podAt({ pods: all }: NamedScene, key: string): NamedPod {
  const pod = all.get(key);
  if (!pod) throw new RangeError(`no pod ${key}`);
  return pod;
}

async function measureAnswers(scene: NamedScene): Promise<void> {
  const [a, c] = [podAt(scene, 'x/a0'), podAt(scene, 'y/c')];
  const count = Math.min(Number(values.answers), NAMES_OF_POD);
  const name = (i: number) => `n${i % count}.example.com`;
  // Into the cache of the server.
  for (let i = 0; i < count; i++) await c.ask(name(i));
  const measure = async (pod: NamedPod): Promise<number[]> => {
    const times: number[] = [];
    for (let i = 0; i < count; i++) {
      const started = performance.now();
      await pod.ask(name(i));
      times.push(performance.now() - started);
    }
    return times.sort((x, y) => x - y);
  };
  const rows: string[][] = [];
  const add = (what: string, times: readonly number[]) => {
    const at = (share: number) => `${((times[Math.floor(times.length * share)] ?? 0) * 1000).toFixed(0)} µs`;
    rows.push([what, String(times.length), at(0.5), at(0.99)]);
  };
  await measure(a);
  add('no policy has names', await measure(a));
  await scene.setPolicies(namedPolicy('c', '*.example.com:443', 'c', 'y'));
  add('a policy of another pod has names', await measure(a));
  await scene.setPolicies(namedPolicy('a', '*.example.com:443', 'a0'));
  add('a policy of the pod has names: two new addresses', await measure(a));
  add('the same: addresses that the pod has', await measure(a));
  await scene.setPolicies();
  add('no policy has names, again', await measure(a));
  printTable([['answers from the cache', 'answers', 'median', '99 %'], ...rows]);
}

async function countFirstPackets(scene: NamedScene, keys: readonly string[]): Promise<void> {
  const head = [
    'first packets after an answer',
    'passed',
    'dropped',
    'transactions',
    'slowest answer',
    'took',
  ];
  const half = Math.ceil(keys.length / 2);
  for (const [what, list, isBusy] of [
    ['idle node', keys.slice(0, half), false],
    ['while transactions of 100,000 elements are committed', keys.slice(half), true],
  ] as const) {
    const busy = isBusy ? busyKernel(scene.node) : null;
    const before = scene.current.enforcement.denied('ipv4', 'egress');
    const started = performance.now();
    let sent = 0;
    let connected = 0;
    let slowest = 0;
    const jobs = list.flatMap((key, p) =>
      Array.from({ length: NAMES_OF_POD }, (_, i) => ({ key, n: p * NAMES_OF_POD + i })),
    );
    const work = async () => {
      for (let job = jobs.pop(); job; job = jobs.pop()) {
        const pod = podAt(scene, job.key);
        const asked = performance.now();
        const { answers } = await pod.ask(`n${job.n}.example.com`);
        slowest = Math.max(slowest, performance.now() - asked);
        for (const address of answers.map((_, i) => outsideAddress(2 * job.n + i))) {
          sent++;
          if (await pod.connects(address)) connected++;
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const seconds = (performance.now() - started) / 1000;
    await busy?.end();
    const dropped = scene.current.enforcement.denied('ipv4', 'egress') - before;
    const transactions = busy ? `${busy.transactions()}` : '-';
    const row = [
      what,
      `${connected} of ${sent}`,
      String(dropped),
      transactions,
      `${slowest.toFixed(0)} ms`,
      `${seconds.toFixed(0)} s`,
    ];
    printTable([head, row]);
  }
}
