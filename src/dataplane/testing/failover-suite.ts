import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { EJECTION_RULES } from '../../failover/ejection-rules.ts';
import type { IPFamily } from '../../lib/address.ts';
import { pause, systemClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { Dataplane } from '../dataplane.ts';
import {
  CLUSTER_IP,
  createFailoverScene,
  type FailoverScene,
  NODE_PORT,
  PORT,
  type SceneOptions,
} from './failover-scene.ts';
import { createTopology, type Place, type Topology } from './topology.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const ALL: readonly Place[] = ['pod1', 'pod2', 'pod3', 'far'];
const OTHERS = ALL.slice(1);
const LOSE_FIRST_SYN = `
  add table ip late
  add set ip late seen { typeof ip saddr . tcp sequence; size 65536; flags dynamic,timeout; timeout 1m; }
  add chain ip late input { type filter hook input priority 0; }
  add rule ip late input tcp flags & (syn | ack) == syn ip saddr . tcp sequence != @seen add @seen { ip saddr . tcp sequence } drop
`;

/**
 * Tests failover in a mode with packets. `families`: the families for tests that do not depend on the
 * family. A list of tests, which share a topology: its length is theirs.
 */
export function testFailover(
  mode: string,
  open: (netns: string) => Dataplane,
  families: readonly IPFamily[] = FAMILIES,
): void {
  describe(`failover in ${mode} mode`, { concurrency: 1 }, () => {
    let topology: Topology;
    let dataplane: Dataplane;
    let scene: FailoverScene | null = null;

    before(() => {
      topology = createTopology();
      dataplane = open(topology.namespace('node'));
    });
    afterEach(async () => {
      await scene?.close();
      scene = null;
    });
    after(async () => {
      await dataplane?.close();
      topology?.close();
    });

    async function begin(
      places: readonly Place[] = ALL,
      options: Partial<SceneOptions> = {},
    ): Promise<FailoverScene> {
      const made = await createFailoverScene(topology, dataplane, { failover: true, ...options });
      scene = made;
      for (const place of places) await made.open(place);
      await made.setEndpoints(places);
      return made;
    }
    const ejection = (made: FailoverScene) =>
      eventually(() => made.verdicts.find(({ kind }) => kind === 'ejected')).then(async (verdict) => {
        await made.settled();
        return verdict;
      });

    for (const family of families) {
      test(`${family}: an endpoint's address is removed: every connection reaches another endpoint`, async () => {
        const made = await begin();
        const load = made.load(['outside', 'pod2'], topology.address('node', family), NODE_PORT, 100);
        await eventually(() => made.failover?.ejected.size === 0);
        made.vanish('pod1');
        try {
          const { endpoint } = await ejection(made);
          assert.ok(endpoint.includes(topology.address('pod1', family)), endpoint);
          const since = performance.now();
          await pause(systemClock, 500);
          const answers = await load.stop();
          assert.deepEqual(
            answers.filter(({ failure }) => failure),
            [],
          );
          const later = answers.filter(({ startedAt }) => startedAt > since);
          assert.ok(later.length > 0);
          assert.deepEqual(
            later.filter(({ place }) => place === 'pod1'),
            [],
          );
        } finally {
          await made.appear('pod1');
        }
      });

      test(`${family}: an endpoint's port is closed: the first refusal ejects it`, async () => {
        const made = await begin();
        const load = made.load(['outside'], topology.address('node', family), NODE_PORT, 100);
        await pause(systemClock, 100);
        made.shut('pod1');
        await ejection(made);
        const since = performance.now();
        await pause(systemClock, 300);
        const answers = await load.stop();
        const late = answers.filter(({ failure, startedAt }) => failure && startedAt > since);
        assert.deepEqual(late, []);
        // Reset: the kernel accepted the connection while the server closed its socket.
        const kinds = new Set(answers.flatMap(({ failure }) => failure ?? []));
        assert.ok(kinds.isSubsetOf(new Set(['refused', 'ECONNRESET'])), [...kinds].join());
      });
    }

    test('the second SYN of a single connection goes to another endpoint', async () => {
      const made = await begin(['pod1', 'pod2']);
      made.vanish('pod1');
      try {
        for (let i = 0; i < 4; i++) {
          const { failure, place } = await made.connect('outside', CLUSTER_IP.ipv4, PORT);
          assert.equal(failure, null);
          assert.equal(place, 'pod2');
        }
      } finally {
        await made.appear('pod1');
      }
    });

    test('a client with affinity to the endpoint gets affinity to another one', async () => {
      const made = await begin();
      await made.setService({ affinity: true });
      const { place: bound } = await made.connect('outside', CLUSTER_IP.ipv4, PORT);
      assert.ok(ALL.includes(bound as Place), String(bound));
      const again = await made.connect('outside', CLUSTER_IP.ipv4, PORT);
      assert.equal(again.place, bound);
      made.vanish(bound as Place);
      try {
        const load = made.load(['outside'], CLUSTER_IP.ipv4, PORT, 10);
        await ejection(made);
        await pause(systemClock, 200);
        const answers = await load.stop();
        assert.deepEqual(
          answers.filter(({ failure }) => failure),
          [],
        );
        const places = new Set(answers.map(({ place }) => place));
        const { place: next } = await made.connect('outside', CLUSTER_IP.ipv4, PORT);
        assert.notEqual(next, bound);
        assert.equal((await made.connect('outside', CLUSTER_IP.ipv4, PORT)).place, next);
        assert.ok(!places.has(bound));
      } finally {
        await made.appear(bound as Place);
      }
    });

    test('a Service without failover keeps its endpoints, and clients wait', async () => {
      const made = await begin(['pod1', 'pod2'], { patienceMs: 1500 });
      await made.setService({ annotations: { 'fairlead.dev/failover': 'disabled' } });
      made.shut('pod1');
      const answers = [];
      for (let i = 0; i < 30; i++) answers.push(await made.connect('outside', CLUSTER_IP.ipv4, PORT));
      assert.ok(answers.some(({ failure }) => failure === 'refused'));
      assert.deepEqual(made.verdicts, []);
    });

    test('the last endpoint is never ejected', async () => {
      const made = await begin(['pod1']);
      made.shut('pod1');
      for (let i = 0; i < 5; i++) {
        assert.equal((await made.connect('outside', CLUSTER_IP.ipv4, PORT)).failure, 'refused');
      }
      assert.deepEqual(made.verdicts, []);
      await made.open('pod1');
      assert.equal((await made.connect('outside', CLUSTER_IP.ipv4, PORT)).place, 'pod1');
    });

    test('an endpoint that answers again returns', async () => {
      const made = await begin(['pod1', 'pod2'], { settings: { ...EJECTION_RULES, firstEjectionMs: 200 } });
      made.shut('pod1');
      for (let i = 0; made.verdicts.length === 0 && i < 50; i++) {
        await made.connect('outside', CLUSTER_IP.ipv4, PORT);
      }
      await ejection(made);
      await made.open('pod1');
      await eventually(() => made.verdicts.some(({ kind }) => kind === 'returned'));
      await made.settled();
      const seen = new Set<string | null>();
      for (let i = 0; i < 60 && seen.size < 2; i++) {
        const { place, failure } = await made.connect('outside', CLUSTER_IP.ipv4, PORT);
        assert.equal(failure, null);
        seen.add(place);
      }
      assert.deepEqual([...seen].sort(), ['pod1', 'pod2']);
    });

    test('an endpoint that is removed and added again has no failures on record', async () => {
      const made = await begin(['pod1', 'pod2']);
      made.shut('pod1');
      for (let i = 0; made.verdicts.length === 0 && i < 50; i++) {
        await made.connect('outside', CLUSTER_IP.ipv4, PORT);
      }
      await ejection(made);
      assert.equal(made.failover?.ejected.size, 1);
      await made.setEndpoints(['pod2']);
      assert.equal(made.failover?.ejected.size, 0);
      await made.open('pod1');
      await made.setEndpoints(['pod1', 'pod2']);
      const seen = new Set<string | null>();
      for (let i = 0; i < 60 && seen.size < 2; i++) {
        seen.add((await made.connect('outside', CLUSTER_IP.ipv4, PORT)).place);
      }
      assert.deepEqual([...seen].sort(), ['pod1', 'pod2']);
    });

    test('an endpoint that loses first packets and then answers keeps failover', async () => {
      const made = await begin(['pod1', 'pod2']);
      // Only the second SYN of a connection arrives, a second later. It is recognized by its sequence number, since its port
      // may be masqueraded as another one after the connection's entry was deleted.
      topology.run('pod1', 'nft', LOSE_FIRST_SYN);
      try {
        await made.load(['outside'], CLUSTER_IP.ipv4, PORT, 40).stopAfter(500);
        await eventually(() => made.verdicts.length === 0 || made.verdicts.at(-1)?.kind === 'returned');
        await made.settled();
        const before = made.unanswered;
        const answers = await made.load(['outside'], CLUSTER_IP.ipv4, PORT, 40).stopAfter(500);
        assert.deepEqual(
          answers.filter(({ failure }) => failure),
          [],
        );
        assert.ok(made.unanswered > before, 'no connection was rerouted');
      } finally {
        topology.run('pod1', 'nft', 'delete table ip late');
      }
    });

    test('no endpoint is ejected without failures', async () => {
      const made = await begin();
      const load = made.load(['outside', 'pod2'], topology.address('node', 'ipv4'), NODE_PORT, 200);
      await pause(systemClock, 700);
      const answers = await load.stop();
      assert.deepEqual(
        answers.filter(({ failure }) => failure),
        [],
      );
      assert.deepEqual(made.verdicts, []);
      assert.equal(new Set(answers.map(({ place }) => place)).size, OTHERS.length + 1);
    });
  });
}
