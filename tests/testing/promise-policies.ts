import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { createPolicyTraffic, POLICIES, ROWS } from './policy-traffic.ts';
import type { PromiseScene } from './promise-scene.ts';
import { createAskers } from './question-asker.ts';

/** Longer than an answer takes, and than the second after which TCP repeats a packet. */
const PATIENCE_MS = 2500;
const FAMILIES = [4, 6] as const;
type Family = (typeof FAMILIES)[number];

const DENIED = { near: 'silence', far: 'silence' };
const ALLOWED = { near: 'answer', far: 'answer' };

export function testPolicies(scene: PromiseScene): void {
  const askers = createAskers(() => scene.cluster);
  after(() => askers.stop());

  async function meet(from: string, host: string, port: number): Promise<string> {
    const family = host.includes(':') ? 6 : 4;
    const question = { host, port, protocol: 'tcp', family, count: 1, patienceMs: PATIENCE_MS } as const;
    const [met] = await askers.in(from).ask(question);
    return met?.kind ?? '';
  }

  const known = new Map<string, readonly [string, string]>();
  async function clusterIPs(name: string): Promise<readonly [string, string]> {
    const found = known.get(name) ?? (await scene.clusterIPs(name));
    known.set(name, found);
    return found;
  }

  /** What a client meets that connects to the Services. */
  async function connected(from: string, family: Family): Promise<Readonly<Record<string, string>>> {
    const met = ['near', 'far'].map(async (name) => {
      const [v4, v6] = await clusterIPs(name);
      return [name, await meet(from, family === 4 ? v4 : v6, 80)];
    });
    return Object.fromEntries(await Promise.all(met));
  }

  async function connectedFromOutside(family: Family): Promise<string> {
    const { cluster } = scene;
    const port = await cluster.ask('get', 'service', 'near', '-o', 'jsonpath={.spec.ports[0].nodePort}');
    const address = cluster.state().nodes[0]?.addresses.find((one) => one.includes(':') === (family === 6));
    return await meet('outside', address ?? '', Number(port));
  }

  const eventuallyMeets = (from: string, family: Family, wanted: Readonly<Record<string, string>>) =>
    eventually(
      () => connected(from, family),
      (met) => isDeepStrictEqual(met, wanted),
      scene.patienceMs,
    );

  test('policies allow and deny, both families', async () => {
    const traffic = createPolicyTraffic(() => scene.cluster, askers);
    await scene.cluster.apply(POLICIES);
    // A busy machine may need longer than a client waits.
    await eventually(
      () => traffic.wrongRows(ROWS),
      (wrong) => wrong.length === 0,
      scene.patienceMs,
    );
  });

  test('a denied connection is not even accepted, until the policy is deleted, both families', async () => {
    const { cluster } = scene;
    await Promise.all(
      FAMILIES.map(async (family) => {
        assert.deepEqual(await connected('foe', family), DENIED);
        assert.equal(await connectedFromOutside(family), 'silence');
        assert.deepEqual(await connected('friend', family), ALLOWED);
      }),
    );
    await cluster.ask('delete', 'networkpolicy', 'servers');
    await Promise.all(FAMILIES.map((family) => eventuallyMeets('foe', family, ALLOWED)));
    await cluster.apply(POLICIES);
    await Promise.all(FAMILIES.map((family) => eventuallyMeets('foe', family, DENIED)));
    await cluster.ask('delete', 'networkpolicy', '--all');
    await cluster.ask('delete', 'service,pod', '-l', 'policy-traffic', '--wait=false');
  });
}
