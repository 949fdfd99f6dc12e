import assert from 'node:assert/strict';
import { test } from 'node:test';
import { printTable } from '../nft/print.ts';
import { readClusterPolicy } from './cluster-policy-reader.ts';
import { createPolicyTable, type PolicyTable } from './policy-table.ts';
import { createPolicyRendering } from './render.ts';
import { namespace, pod } from './testing/policy-objects.ts';
import { generator, randomClusterPolicies, randomPolicies } from './testing/random-policies.ts';

const CLUSTERS = 25;
const EDITS = 60;
const NAMESPACES = ['x', 'y', 'z'];
const PODS = NAMESPACES.flatMap((one) => [1, 2, 3, 4].map((number) => `${one}/p${number}`));

const print = (table: PolicyTable): string => {
  const spec = createPolicyRendering(table, { family: 'ipv4' }).table();
  return spec ? printTable(spec) : '';
};

/** Returns owners' groups as updated from change to change, which a new rendering must equal. */
function patched(table: PolicyTable) {
  const rendering = createPolicyRendering(table, { family: 'ipv4' });
  const groups = new Map<string, string>();
  const write = (owner: string, group: ReturnType<typeof rendering.pod>) => {
    if (group) groups.set(owner, JSON.stringify(group.elements));
    else groups.delete(owner);
  };
  return {
    groups,
    commit() {
      const { pods, policies } = table.commit();
      for (const key of policies) write(`policy ${key}`, rendering.policy(key));
      for (const key of pods) write(`pod ${key}`, rendering.pod(key));
    },
  };
}

test('incremental changes yield the same result as a new table of the same objects', () => {
  for (let seed = 1; seed <= CLUSTERS; seed++) {
    const random = generator(seed);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
    /** The existing objects, each as a call that adds it to a table. */
    const objects = new Map<string, (table: PolicyTable) => void>();
    const table = createPolicyTable('node-1');
    const kept = patched(table);
    const edit = () => {
      const kind = random();
      const isGone = random() < 0.3;
      if (kind < 0.2) {
        const name = pick(NAMESPACES);
        objects.delete(`namespace ${name}`);
        if (isGone) table.deleteNamespace(name);
        else put(`namespace ${name}`, namespaceSetter(name, pick(['team=blue', 'team=red', ''])));
      } else if (kind < 0.65) {
        const key = pick(PODS);
        objects.delete(`pod ${key}`);
        if (isGone) table.deletePod(key);
        else put(`pod ${key}`, podSetter(key));
      } else if (kind < 0.75) {
        const [one] = randomClusterPolicies(Math.floor(random() * 1e6));
        if (!one) return;
        const { policy } = readClusterPolicy(one.kind, {
          ...one.object,
          metadata: { name: pick(['c0', 'c1', 'c2']) },
        });
        objects.delete(`policy ${policy.key}`);
        if (isGone) table.deletePolicy(policy.key);
        else put(`policy ${policy.key}`, (of) => of.setClusterPolicy(policy));
      } else {
        const [policy] = randomPolicies(Math.floor(random() * 1e6), PODS).policies;
        if (!policy) return;
        const key = `${policy.metadata?.namespace}/${policy.metadata?.name}`;
        objects.delete(`policy ${key}`);
        if (isGone) table.deletePolicy(key);
        else put(`policy ${key}`, (one) => one.setPolicy(policy));
      }
    };
    const put = (key: string, set: (table: PolicyTable) => void) => {
      objects.set(key, set);
      set(table);
    };
    const namespaceSetter = (name: string, team: string) => (one: PolicyTable) =>
      one.setNamespace(namespace(name, team));
    const podSetter = (key: string) => {
      const object = pod({
        key,
        labels: pick(['app=a', 'app=b', 'app=a,tier=web', '']),
        node: pick(['node-1', 'node-2']),
        ips: [`10.244.0.${PODS.indexOf(key) + 10}`],
        ports: pick([['http=80'], ['http=81', 'dns=53/UDP'], []]),
      });
      return (one: PolicyTable) => one.setPod(object);
    };
    for (let round = 0; round < EDITS; round++) {
      edit();
      kept.commit();
      const fresh = createPolicyTable('node-1');
      for (const set of objects.values()) set(fresh);
      const context = `seed ${seed} round ${round}`;
      assert.equal(print(table), print(fresh), context);
      const whole = patched(fresh);
      whole.commit();
      assert.deepEqual(sorted(kept.groups), sorted(whole.groups), context);
    }
  }
});

/** Ignores the order of a group's elements. */
const sorted = (groups: ReadonlyMap<string, string>): [string, unknown[]][] =>
  [...groups]
    .map(([owner, text]): [string, unknown[]] => [
      owner,
      (JSON.parse(text) as unknown[]).map((one) => JSON.stringify(one)).sort(),
    ])
    .sort(([a], [b]) => (a < b ? -1 : 1));
