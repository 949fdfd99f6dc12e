import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createFlowExplainer } from '../src/cluster/explain-flow.ts';
import type { TracedFlow } from '../src/cluster/trace-flow.ts';
import type { Mode } from '../src/dataplane/dataplane.ts';
import { inNetns } from '../src/kernel/netns.ts';
import { readFrame, TUNNEL_PORT } from '../src/kernel/packet.ts';
import type { Pod } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { nodeNetns } from '../src/network/topology.ts';
import { renderExplanation, renderShort, SHORT_COLUMNS, SHORT_LINES } from '../src/observe/explain-text.ts';
import type { Explanation } from '../src/observe/explain-view.ts';
import { type Cluster, spawnFairlead, startCluster } from './testing/cluster.ts';
import { type Asker, type Met, startAsker } from './testing/question-asker.ts';
import { sceneObjects, UNREADY } from './testing/question-scene.ts';
import { QUESTIONS, type QuestionRow, type Reality, VARIATIONS } from './testing/questions.ts';
import { checkShown, SHOWN, startFlows } from './testing/shown-flows.ts';
import { checkWay, TRACED } from './testing/traced-ways.ts';

/**
 * Compares `explain` with reality: each question is answered by it, and by a client that connects in the
 * same place. Runs in the modes that differ most, unless FAIRLEAD_QUESTION_MODES lists others
 * ("iptables,ipvs"): iptables differs from nftables only in its rules, which the check compares, and ipvs
 * needs a kernel with ip_vs.
 */
const MODES = (process.env['FAIRLEAD_QUESTION_MODES'] ?? 'nftables,userspace,ebpf').split(',') as Mode[];
const ROWS = [...QUESTIONS, ...VARIATIONS];
/** Number of requests to a Service with several endpoints. */
const MANY = 16;
const FEW = 2;
/**
 * Longer than the three seconds after which a kernel reports that no host has an address; an answer may take long on a
 * busy machine.
 */
const SILENCE_MS = 4500;
const PATIENCE_MS = 10_000;

let cluster: Cluster;
const askers = new Map<string, Asker>();

before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual']);
  process.env['FAIRLEAD_STATE'] = cluster.stateRoot;
  const outside = cluster.state().outsideAddresses[0] ?? '';
  await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'List', items: sceneObjects(outside) }));
  await eventually(notReady, (names) => names.length === 0, 60_000);
  for (const from of new Set(ROWS.map((row) => row.from))) askers.set(from, startAsker(cluster, from));
});
after(async () => {
  for (const asker of askers.values()) asker.stop();
  await cluster?.down();
});

/** Returns the pods that should become ready and are not yet. */
async function notReady(): Promise<string[]> {
  const { items } = JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as {
    items: { metadata: { name: string }; status: { conditions?: { type: string; status: string }[] } }[];
  };
  return items
    .filter(({ status }) => !status.conditions?.some((one) => one.type === 'Ready' && one.status === 'True'))
    .map(({ metadata }) => metadata.name)
    .filter((name) => !UNREADY.includes(name));
}

for (const mode of MODES) {
  describe(`${mode} mode`, () => {
    before(async () => {
      const { status, error } = await cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
    });
    for (const [title, rows] of [
      ['questions', QUESTIONS],
      ['variations', VARIATIONS],
    ] as const) {
      test(title, { concurrency: 8 }, async (t) => {
        const addresses = await loadBalancers();
        await Promise.all(rows.map((row) => t.test(row.name, () => compare(mode, row, addresses))));
      });
    }
    test('traced packets, and flows with the reasons of failures', { concurrency: 8 }, async (t) => {
      const asker = askers.get('client');
      assert.ok(asker);
      const { items } = JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as { items: Pod[] };
      const lone = items
        .find(({ metadata }) => metadata?.name === 'lone')
        ?.status?.podIPs?.find(({ ip }) => ip?.includes('.'))?.ip;
      assert.ok(lone);
      const reader = startFlows(cluster);
      try {
        const shown = SHOWN.filter(({ notIn }) => !notIn?.includes(mode));
        await Promise.all([
          ...TRACED.map((row) => t.test(row.name, () => checkWay(cluster.state(), items, mode, row))),
          ...shown.map((row) => t.test(`flows: ${row.name}`, () => checkShown(reader, asker, lone, row))),
        ]);
      } finally {
        reader.stop();
      }
    });
  });
}

test('a trace and a capture see their packets among others, and leave nothing when they are killed', async () => {
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
      ...['svc/local', 'tcp and src host svc/local', '-w', file, '--count', '20'],
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

async function compare(mode: Mode, row: QuestionRow, loadBalancers: ReadonlyMap<string, string>) {
  const { nodes } = cluster.state();
  const nodeAddress = (index: number) => {
    const address = nodes[index]?.addresses[row.family === 6 ? 1 : 0] ?? '';
    return address.includes(':') ? `[${address}]` : address;
  };
  const to = row.to
    .replace('NODE1', nodeAddress(0))
    .replace('NODE2', nodeAddress(1))
    .replace(/LB\(([a-z-]+)\)/, (_, name: string) => loadBalancers.get(name) ?? '');
  const family = row.family ?? 4;
  const explanation = await createFlowExplainer(cluster.state()).explain({
    from: row.from,
    to,
    family: family === 6 ? 'ipv6' : 'ipv4',
  });
  const expected = row.in?.[mode] ?? row.real;
  const count = explanation.endpoints.length > 1 ? MANY : FEW;
  const patienceMs = expected === 'silence' ? SILENCE_MS : PATIENCE_MS;
  const asker = askers.get(row.from);
  assert.ok(asker);
  const met = await asker.ask({ ...addressed(to, explanation), family, count, patienceMs });
  const seen = realityOf(met, mode === 'userspace' && explanation.endpoints.length > 0);
  const text = renderExplanation(explanation);
  assert.equal(seen, expected, `the scene is not what it should be: ${JSON.stringify(met[0])}\n${text}`);
  assert.equal(SAID[explanation.verdict], seen, `explain is wrong: ${JSON.stringify(met[0])}\n${text}`);
  // The programs see a process of the node or not, depending on its control group.
  compareAnswers(met, explanation, mode === 'ebpf' && row.from.startsWith('node/'));
  const short = renderShort(explanation).trimEnd();
  assert.ok(short.split('\n').length <= SHORT_LINES, short);
  for (const line of short.split('\n')) assert.ok(line.length <= SHORT_COLUMNS, line);
  if (row.says) assert.match(short, row.says);
}

/** Compares the answering endpoints and the source address that they see with the explanation. */
function compareAnswers(
  met: readonly Met[],
  { endpoints, clientSeen }: Explanation,
  mayBeUnknown: boolean,
): void {
  for (const one of met) {
    if (one.kind !== 'answer' || one.server === '') continue;
    if (endpoints.length === 0) {
      assert.equal(one.client, clientSeen, `${one.server} sees another client`);
      continue;
    }
    // A server in the host network has its node's name.
    const found = endpoints.find(({ pod, node }) => pod?.endsWith(`/${one.server}`) || node === one.server);
    assert.ok(found, `${one.server} answers, which is not among the endpoints`);
    if (mayBeUnknown && found.clientSeen === null) continue;
    assert.equal(one.client, found.clientSeen, `${one.server} sees another client`);
  }
}

const SAID: Readonly<Record<Explanation['verdict'], Reality | 'unknown'>> = {
  delivered: 'answer',
  partial: 'some',
  unreachable: 'unreachable',
  rejected: 'refused',
  dropped: 'silence',
  unresolved: 'unresolved',
  unknown: 'unknown',
};

/** Returns the address that a client in this place connects to. Names are left to its resolver. */
function addressed(
  to: string,
  { packet }: Explanation,
): { host: string; port: number; protocol: 'tcp' | 'udp' } {
  const typed = to.replace(/^https?:\/\/([^/]*).*$/, '$1').replace(/\/(tcp|udp)$/i, '');
  const name = /^([a-z0-9.-]+)(:[0-9]+)?$/.exec(typed);
  const protocol = packet?.protocol === 'UDP' ? 'udp' : 'tcp';
  if (packet === null || (name && !/^[0-9.]+(:[0-9]+)?$/.test(typed) && !typed.startsWith('outside'))) {
    return { host: name?.[1] ?? typed, port: packet?.port ?? 80, protocol };
  }
  return { host: packet.destination, port: packet.port, protocol };
}

function realityOf(met: readonly Met[], isProxied: boolean): Reality | string {
  const kinds = new Set(met.map(({ kind }) => (isProxied ? (BEHIND_PROXY[kind] ?? kind) : kind)));
  const [only = ''] = kinds;
  const first = met[0];
  if (kinds.size === 1) return first?.kind === 'failed' ? first.error : only === 'accepted' ? 'answer' : only;
  return kinds.has('answer') && kinds.has('refused') && kinds.size === 2
    ? 'some'
    : [...kinds].sort().join(' and ');
}

/**
 * A proxy has accepted the connection before it knows whether an endpoint will: it can only reset the
 * connection or not answer.
 */
const BEHIND_PROXY: Partial<Record<Met['kind'], Reality>> = { reset: 'refused', accepted: 'silence' };

async function loadBalancers(): Promise<Map<string, string>> {
  const { items } = JSON.parse(await cluster.ask('get', 'services', '-o', 'json')) as {
    items: { metadata: { name: string }; status: { loadBalancer?: { ingress?: { ip: string }[] } } }[];
  };
  return new Map(
    items.map(({ metadata, status }) => {
      const found = status.loadBalancer?.ingress?.map(({ ip }) => ip).find((ip) => !ip.includes(':'));
      return [metadata.name, found ?? ''];
    }),
  );
}
