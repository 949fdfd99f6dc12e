import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createFlowExplainer } from '../../src/cluster/explain-flow.ts';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import {
  renderExplanation,
  renderShort,
  SHORT_COLUMNS,
  SHORT_LINES,
} from '../../src/observe/explain-text.ts';
import type { Explanation } from '../../src/observe/explain-view.ts';
import { type Cluster, startCluster } from './cluster.ts';
import { type Asker, type Met, startAsker } from './question-asker.ts';
import { sceneObjects, UNREADY } from './question-scene.ts';
import { QUESTIONS, type QuestionRow, type Reality, VARIATIONS } from './questions.ts';

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
const READY_MS = 60_000;

/** The cluster with the scene of question-scene.ts, and a client in each place that questions are asked from. */
export interface AskedScene {
  readonly cluster: Cluster;
  asker(place: string): Asker;
}

/**
 * Compares `explain` with reality in each of the modes: each question is answered by it, and by a client that connects
 * in the same place. `alsoIn` adds tests of the same scene to a mode.
 */
export function testQuestions(
  modes: readonly Mode[],
  {
    concurrency,
    alsoIn,
  }: { readonly concurrency: number; readonly alsoIn?: (mode: Mode, scene: AskedScene) => void },
): AskedScene {
  let started: Cluster | undefined;
  const askers = new Map<string, Asker>();
  const scene: AskedScene = {
    get cluster() {
      assert.ok(started);
      return started;
    },
    asker(place) {
      const asker = askers.get(place);
      assert.ok(asker);
      return asker;
    },
  };
  before(async () => {
    started = await startCluster(['--nodes', '2', '--ip-family', 'dual']);
    const cluster = started;
    process.env['FAIRLEAD_STATE'] = cluster.stateRoot;
    const outside = cluster.state().outsideAddresses[0] ?? '';
    await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'List', items: sceneObjects(outside) }));
    await eventually(
      () => notReady(cluster),
      (names) => names.length === 0,
      READY_MS,
    );
    for (const from of new Set(ROWS.map((row) => row.from))) askers.set(from, startAsker(cluster, from));
  });
  after(async () => {
    for (const asker of askers.values()) asker.stop();
    await started?.down();
  });
  for (const mode of modes) {
    describe(`${mode} mode`, () => {
      before(async () => {
        const { status, error } = await scene.cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
      });
      for (const [title, rows] of [
        ['questions', QUESTIONS],
        ['variations', VARIATIONS],
      ] as const) {
        test(title, { concurrency }, async (t) => {
          const addresses = await loadBalancers(scene.cluster);
          await Promise.all(rows.map((row) => t.test(row.name, () => compare(scene, mode, row, addresses))));
        });
      }
      alsoIn?.(mode, scene);
    });
  }
  return scene;
}

/** Returns the pods that should become ready and are not yet. */
async function notReady(cluster: Cluster): Promise<string[]> {
  const { items } = JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as {
    items: { metadata: { name: string }; status: { conditions?: { type: string; status: string }[] } }[];
  };
  return items
    .filter(({ status }) => !status.conditions?.some((one) => one.type === 'Ready' && one.status === 'True'))
    .map(({ metadata }) => metadata.name)
    .filter((name) => !UNREADY.includes(name));
}

async function compare(
  { cluster, asker }: AskedScene,
  mode: Mode,
  row: QuestionRow,
  loadBalancers: ReadonlyMap<string, string>,
): Promise<void> {
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
  const met = await asker(row.from).ask({ ...addressed(to, explanation), family, count, patienceMs });
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

async function loadBalancers(cluster: Cluster): Promise<Map<string, string>> {
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
