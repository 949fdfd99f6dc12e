import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { TracedFlow } from '../src/cluster/trace-flow.ts';
import type { Mode } from '../src/dataplane/dataplane.ts';
import { inNetns } from '../src/kernel/netns.ts';
import { readFrame, TUNNEL_PORT } from '../src/kernel/packet.ts';
import type { Pod } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { nodeNetns } from '../src/network/topology.ts';
import { spawnFairlead } from './testing/cluster.ts';
import { checkForeignRules, FOREIGN_RULES } from './testing/foreign-rules.ts';
import { type AskedScene, testQuestions } from './testing/question-suite.ts';
import { checkShown, SHOWN, startFlows } from './testing/shown-flows.ts';
import { checkLookups, checkWay, LOOKUPS, TRACED } from './testing/traced-ways.ts';

// The modes that differ most; explain.matrix.test.ts and explain.matrix.vm.test.ts have the others.
const scene = testQuestions(['nftables', 'userspace', 'ebpf'], {
  concurrency: 8,
  choice: 'first has all',
  alsoIn: (mode, asked) => {
    testTracesAndFlows(mode, asked);
    testForeignRules(mode, asked);
  },
});

function testForeignRules(mode: Mode, asked: AskedScene): void {
  // One after another: they would stop each other's packets.
  describe('rules of other programs', () => {
    const rows = FOREIGN_RULES.filter(({ isOfWay }) => mode === 'nftables' || isOfWay);
    for (const row of rows)
      test(row.name, async () => checkForeignRules(asked, mode, await asked.addresses(), row));
  });
}

function testTracesAndFlows(mode: Mode, scene: AskedScene): void {
  test('traced packets, and flows with the reasons of failures', { concurrency: 8 }, async (t) => {
    const { cluster } = scene;
    const { items } = JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as { items: Pod[] };
    const lone = items
      .find(({ metadata }) => metadata?.name === 'lone')
      ?.status?.podIPs?.find(({ ip }) => ip?.includes('.'))?.ip;
    assert.ok(lone);
    const reader = startFlows(cluster);
    try {
      await Promise.all([
        ...TRACED.map((row) => t.test(row.name, () => checkWay(cluster.state(), items, mode, row))),
        ...LOOKUPS.map((row) =>
          t.test(`questions before ${row.name}`, () => checkLookups(cluster.state(), items, row)),
        ),
        ...SHOWN.map((row) =>
          t.test(`flows: ${row.name}`, () => checkShown(reader, scene.asker('client'), lone, row)),
        ),
      ]);
    } finally {
      reader.stop();
    }
  });
}

test('a trace and a capture see their packets among others, and leave nothing when they are killed', async () => {
  const { cluster } = scene;
  const load = cluster.load('client-2', 'http://local', '--count', '200', '--rate', '200');
  const file = join(cluster.stateRoot, 'captured.pcapng');
  try {
    const { out } = await cluster.fairlead('trace', 'client', 'svc/local', '--count', '2', '-o', 'json');
    for (const { trace, agreement } of JSON.parse(out) as TracedFlow[]) {
      assert.equal(trace?.answer.kind, 'answered', out);
      assert.equal(trace.legs.filter(({ way, isRelayed }) => way === 'there' && !isRelayed).length, 1, out);
      assert.ok(
        agreement?.steps.every(({ isRight }) => isRight !== false),
        out,
      );
    }
    const watched = await cluster.fairlead('trace', '--watch', 'svc/local', '-o', 'json');
    const other = JSON.parse(watched.out) as TracedFlow;
    assert.equal(other.explanation.from, 'pod default/client-2', watched.out);
    assert.equal(other.trace?.answer.kind, 'answered', watched.out);
    const wrongStep = other.agreement?.steps.find(({ isRight }) => isRight === false);
    assert.equal(wrongStep, undefined, watched.out);
    const { status, error } = await cluster.fairlead(
      'capture',
      // The first bound ends it, not the last.
      ...['svc/local', 'tcp and src host svc/local', '-w', file, '--count', '20', '--duration', '3600'],
    );
    assert.equal(status, 0, error);
  } finally {
    await load.stop();
  }
  const packets = pcapngPackets(readFileSync(file));
  assert.equal(packets.length, 20);
  const wrong = packets.filter((frame) => readFrame(frame, TUNNEL_PORT)?.tcp == null);
  assert.deepEqual(wrong, [], 'only TCP was asked for');
  const { name } = cluster;
  const taps = () => readInNode(nodeNetns(name, 'node-1'), '/proc/thread-self/net/packet').split('\n').length;
  const before = taps();
  const child = spawnFairlead(cluster.stateRoot, ['capture', '--name', name]);
  await eventually(taps, (count) => count > before);
  child.kill('SIGKILL');
  await eventually(taps, (count) => count === before);
});

/** Type of an enhanced packet block. */
const PACKET_BLOCK = 6;

/** The frames of a file; throws where the lengths at the two ends of a block differ. */
function pcapngPackets(file: Buffer): Buffer[] {
  const packets: Buffer[] = [];
  for (let at = 0; at < file.length; ) {
    const length = file.readUInt32LE(at + 4);
    assert.equal(file.readUInt32LE(at + length - 4), length, `block at ${at}`);
    if (file.readUInt32LE(at) === PACKET_BLOCK)
      packets.push(file.subarray(at + 28, at + 28 + file.readUInt32LE(at + 20)));
    at += length;
  }
  return packets;
}

const readInNode = (netns: string, file: string) => inNetns(netns, () => readFileSync(file, 'utf8'));
