import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { TracedFlow } from '../src/cluster/trace-flow.ts';
import type { Pod } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { testCapturedFile } from './testing/captured-file.ts';
import { type Cluster, HELLO, LAUNCHER, spawnFairlead, startCluster } from './testing/cluster.ts';
import { clusterPlaces, packetSockets, wirePlace } from './testing/cluster-places.ts';
import { kernelTraces } from './testing/kernel-traces.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/**
 * Opens and closes connections to an address, 1,000 a second if the machine can, until standard input ends, and prints their
 * number, how many failed, and how long it took. It does not catch up after a pause: thousands at once are another load.
 */
const CONNECT = `
const { connect } = require('node:net');
const begun = performance.now();
let opened = 0, ended = 0, failures = 0, stopping = false, last = begun;
const timer = setInterval(() => {
  if (stopping) {
    if (ended === opened) {
      clearInterval(timer);
      console.log(JSON.stringify({ opened, failures, milliseconds: performance.now() - begun }));
    }
    return;
  }
  const now = performance.now();
  const due = Math.min(Math.round(now - last), 50);
  last = now;
  for (let i = 0; i < due; i++, opened++) {
    const socket = connect(Number(process.argv[2]), process.argv[1], () => socket.resetAndDestroy());
    socket.on('error', () => { failures++; }).on('close', () => { ended++; });
  }
}, 5);
process.stdin.resume().on('end', () => { stopping = true; });
`;
const ROUNDS = TAKES_FULL_PRODUCT ? 2 : 1;

let cluster: Cluster;
let pods: Pod[];
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '--overlay', 'vxlan', '-f', HELLO]);
  pods = (JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as { items: Pod[] }).items;
});
after(() => cluster?.down());

testCapturedFile(() => ({ cluster, pods }));

/**
 * The modes that observe connections in different ways. In nftables mode, explain.netns.test.ts traces
 * packets, and explain-vxlan.matrix.test.ts compares explain with packets in tunnels.
 */
const MODES = [
  ...(TAKES_FULL_PRODUCT ? [{ mode: 'nftables', isProxied: false }] : []),
  { mode: 'userspace', isProxied: true },
  { mode: 'ebpf', isProxied: false },
];

for (const { mode, isProxied } of MODES) {
  describe(`${mode} mode`, () => {
    before(async () => {
      const { status, error } = await cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
    });

    test('traced connections are found in the middle of 1,000 others a second, and nothing else is', async (t) => {
      const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
      // A proxy may not keep up: the others go to an endpoint, whose port the trace has to look at, too.
      const endpoint = pods.find(({ metadata }) => metadata?.name?.startsWith('hello-'))?.status?.podIP ?? '';
      const end = isProxied ? [endpoint, '8080'] : [service, '80'];
      const place = ['exec', '--name', cluster.name, 'client', '--'];
      const words = [...place, '/opt/fairlead/node', '-e', CONNECT, ...end];
      const env = { ...process.env, FAIRLEAD_STATE: cluster.stateRoot };
      const load = spawn(LAUNCHER, words, { stdio: ['pipe', 'pipe', 'inherit'], env });
      const counted = load.stdout.setEncoding('utf8').toArray();
      let lost = 0;
      let compared = 0;
      try {
        for (let round = 0; round < ROUNDS; round++) {
          const own = ['client', 'svc/hello', '--count', '5'];
          const ofOthers = ['--watch', 'svc/hello', '--count', '2'];
          for (const question of isProxied ? [own] : [own, ofOthers]) {
            assert.equal(load.exitCode, null, 'the others have ended');
            const { out, error } = await cluster.fairlead('trace', ...question, '-o', 'json');
            assert.notEqual(out, '', error);
            for (const flow of JSON.parse(out) as TracedFlow[]) {
              // A machine that is too busy to read all frames loses some; the trace says so.
              lost += flow.trace?.lostFrames ?? 0;
              if (flow.trace?.lostFrames) continue;
              compareFlow(flow, out);
              compared++;
            }
          }
        }
      } finally {
        load.stdin.end();
      }
      const counts = JSON.parse((await counted).join('')) as {
        readonly opened: number;
        readonly failures: number;
        readonly milliseconds: number;
      };
      t.diagnostic(
        `${Math.round((counts.opened * 1000) / counts.milliseconds)} connections a second, ${lost} frames lost`,
      );
      assert.ok(compared > 0, `${lost} frames lost, no trace without losses`);
      assert.equal(counts.failures, 0);
    });

    for (const [name, words] of [
      ['trace', ['client', 'svc/hello', '--count', '1000']],
      ['trace --watch', ['--watch', 'svc/hello', '--count', '1000']],
    ] as const) {
      test(`a killed ${name} leaves nothing behind`, async () => {
        const places = [...clusterPlaces(cluster, pods), wirePlace(cluster)];
        const traces = () => kernelTraces(cluster, places);
        const before = traces();
        const observed = places.filter(
          ({ name }) => name === 'pod default/client' || name.startsWith('node-'),
        );
        const sockets = () => observed.map(packetSockets);
        const first = sockets();
        const child = spawnFairlead(cluster.stateRoot, ['trace', '--name', cluster.name, ...words]);
        const closed = once(child, 'close');
        try {
          await eventually(sockets, (now) => now.every((count, index) => count > (first[index] ?? 0)));
        } finally {
          child.kill('SIGKILL');
        }
        assert.deepEqual(await closed, [null, 'SIGKILL']);
        await eventually(
          () => ({ before, now: traces() }),
          ({ now }) => isDeepStrictEqual(now, before),
        ).catch(() => assert.deepEqual(traces(), before));
      });
    }
  });
}

/** One connection, each of its packets once, and no step of `explain` that it contradicts, in a trace without losses. */
function compareFlow({ trace, agreement }: TracedFlow, text: string): void {
  assert.ok(trace && agreement, text);
  assert.equal(trace.answer.kind, 'answered', text);
  for (const isRelayed of [false, true]) {
    const kinds: string[] = trace.legs.filter((leg) => leg.isRelayed === isRelayed).map(({ kind }) => kind);
    if (!isRelayed || kinds.length > 0) assert.deepEqual(kinds, ['SYN', 'SYN-ACK'], text);
  }
  for (const { hops } of trace.legs) {
    const passed = hops.map(({ place, direction, device }) => `${place} ${direction} ${device}`);
    assert.deepEqual([...new Set(passed)], passed, text);
  }
  assert.ok(
    agreement.steps.every(({ isRight }) => isRight !== false),
    text,
  );
}
