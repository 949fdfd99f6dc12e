import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import { ADDRESS_ANNOUNCED } from '../../src/kube/load-balancer.ts';
import type { Pod, Service } from '../../src/kube/types.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { type Cluster, startCluster } from './cluster.ts';
import { CORNERS } from './corner-questions.ts';
import { CORNER_UNREADY, cornerObjects } from './corner-scene.ts';
import { type Asker, startAsker } from './question-asker.ts';
import { chooseRows, type RowChoice } from './question-choice.ts';
import { compareQuestion, type SceneAddresses } from './question-comparison.ts';
import { sceneObjects, UNANNOUNCED, UNREADY } from './question-scene.ts';
import { QUESTIONS, VARIATIONS } from './questions.ts';

const ROWS = [...QUESTIONS, ...VARIATIONS, ...CORNERS];
const READY_MS = 60_000;

/** The cluster with the scene of question-scene.ts, and a client in each place that questions are asked from. */
export interface AskedScene {
  readonly cluster: Cluster;
  asker(place: string): Asker;
  addresses(): Promise<SceneAddresses>;
}

/**
 * Compares `explain` with reality in each of the modes: each question is answered by it, and by a client that connects
 * in the same place. `alsoIn` adds tests of the same scene to a mode.
 */
export function testQuestions(
  modes: readonly Mode[],
  {
    concurrency,
    choice,
    upOptions = [],
    alsoIn,
  }: {
    readonly concurrency: number;
    readonly choice: RowChoice;
    /** More options of `fairlead up`. */
    readonly upOptions?: readonly string[];
    readonly alsoIn?: (mode: Mode, scene: AskedScene) => void;
  },
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
    addresses: () => readAddresses(scene.cluster),
  };
  before(async () => {
    started = await startCluster(['--nodes', '2', '--ip-family', 'dual', ...upOptions]);
    const cluster = started;
    process.env['FAIRLEAD_STATE'] = cluster.stateRoot;
    const outside = cluster.state().outsideAddresses[0] ?? '';
    await createAndWait(cluster, sceneObjects(outside));
    const { items } = JSON.parse(await cluster.ask('get', 'pods', '-o', 'json')) as { items: Pod[] };
    const addresses = new Map(items.map(({ metadata, status }) => [metadata?.name, status?.podIP ?? '']));
    const [node] = cluster.state().nodes;
    const network = await cluster.ask('get', 'node', node?.name ?? '', '-o', 'jsonpath={.spec.podCIDRs[0]}');
    const podAddress = (name: string) => addresses.get(name) ?? '';
    await createAndWait(cluster, cornerObjects(outside, node?.addresses[0] ?? '', network, podAddress));
    // A client that asks before that holds the address for unreachable.
    await eventually(
      () => notAnnounced(cluster),
      (names) => names.length === 0,
      READY_MS,
    );
    for (const from of new Set(ROWS.map((row) => row.from))) {
      askers.set(from, startAsker(cluster, from, askers.size));
    }
  });
  after(async () => {
    for (const asker of askers.values()) asker.stop();
    await started?.down();
  });
  for (const [index, mode] of modes.entries()) {
    describe(`${mode} mode`, () => {
      before(async () => {
        const { status, error } = await scene.cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
      });
      for (const [title, rows] of [
        ['questions', QUESTIONS],
        ['variations', VARIATIONS],
        ['corners', CORNERS],
      ] as const) {
        test(title, { concurrency }, async (t) => {
          const addresses = await readAddresses(scene.cluster);
          await Promise.all(
            chooseRows(rows, choice, index, modes.length).map((row) =>
              t.test(row.name, () =>
                compareQuestion(scene.cluster.state(), scene.asker(row.from), mode, row, addresses),
              ),
            ),
          );
        });
      }
      alsoIn?.(mode, scene);
    });
  }
  return scene;
}

/** Creates objects, and waits until all pods that should become ready are. */
async function createAndWait(cluster: Cluster, items: readonly unknown[]): Promise<void> {
  await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  await eventually(
    () => notReady(cluster),
    (names) => names.length === 0,
    READY_MS,
  );
}

/** Returns the pods that should become ready and are not yet. */
async function notReady(cluster: Cluster): Promise<string[]> {
  const { items } = JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as {
    items: { metadata: { name: string }; status: { conditions?: { type: string; status: string }[] } }[];
  };
  return items
    .filter(({ status }) => !status.conditions?.some((one) => one.type === 'Ready' && one.status === 'True'))
    .map(({ metadata }) => metadata.name)
    .filter((name) => ![...UNREADY, ...CORNER_UNREADY].includes(name));
}

async function readServices(cluster: Cluster): Promise<Service[]> {
  return (JSON.parse(await cluster.ask('get', 'services', '-o', 'json')) as { items: Service[] }).items;
}

/** Returns the load balancers whose addresses are not announced yet. */
async function notAnnounced(cluster: Cluster): Promise<string[]> {
  const items = await readServices(cluster);
  return items
    .filter(({ spec }) => spec?.type === 'LoadBalancer' && spec.loadBalancerClass === undefined)
    .filter(
      ({ status }) =>
        !status?.conditions?.some((one) => one.type === ADDRESS_ANNOUNCED && one.status === 'True'),
    )
    .map(({ metadata }) => metadata?.name ?? '')
    .filter((name) => !UNANNOUNCED.includes(name));
}

async function readAddresses(cluster: Cluster): Promise<SceneAddresses> {
  const items = await readServices(cluster);
  const loadBalancers = items.map(({ metadata, status }): [string, string] => {
    const found = status?.loadBalancer?.ingress
      ?.flatMap(({ ip }) => ip ?? [])
      .find((ip) => !ip.includes(':'));
    return [metadata?.name ?? '', found ?? ''];
  });
  const networks = await cluster.ask('get', 'nodes', '-o', 'jsonpath={.items[*].spec.podCIDRs[0]}');
  return {
    loadBalancers: new Map(loadBalancers),
    bridges: networks.split(' ').map((network) => network.replace(/0\/\d+$/, '1')),
  };
}
