import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Frontend, PortRef } from '../../service/model.ts';
import { changeBetween, endpoint, frontend, NODE, serviceMap } from '../testing/service-map.ts';
import { serviceChain, treeChain } from './chain-names.ts';
import { createDispatchTree, dispatchKey } from './dispatch-tree.ts';
import { parseSave } from './restore.ts';
import { chance, rule } from './rule.ts';
import { createRuleset } from './ruleset.ts';

const OPTIONS = { dropInvalid: true, affinity: true };

function randomNumbers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >> 8) % limit;
  };
}

test("chain names equal kube-proxy's", () => {
  const owner: PortRef = { namespace: 'ns1', name: 'svc1', portName: 'p80', protocol: 'TCP' };
  assert.equal(serviceChain('KUBE-SVC-', owner), 'KUBE-SVC-XPGD46QRK7WJZT7O');
  assert.equal(serviceChain('KUBE-SEP-', owner, '10.180.0.1:80'), 'KUBE-SEP-SXIVWICOYRO3J4NJ');
  for (const digits of ['', '0a60', '0a6000016', 'fd000096000000000000000000000001']) {
    assert.ok(treeChain('KUBE-FWIP-', digits).length <= 28);
  }
});

test('probabilities of n endpoints are exact to the precision of the kernel', () => {
  for (const n of [2, 3, 7, 11, 100, 5000]) {
    let left = 1;
    for (let i = n; i > 1; i--) {
      const p = Number(/[0-9.]+$/.exec(chance(i))?.[0]);
      assert.ok(Math.abs(left * p - 1 / n) < n * 2 ** -31, `${n} at ${i}`);
      left *= 1 - p;
    }
  }
});

test('a probability halfway between two texts is rounded as iptables does', () => {
  assert.match(chance(4096), / 0\.00024414062$/);
});

test('comments cannot end an argument or a line', () => {
  assert.equal(rule({ comment: 'a"b\nc -j ACCEPT' }, '-j X'), '-m comment --comment "a?b?c -j ACCEPT" -j X');
});

test('only our chains of iptables-save are parsed', () => {
  const table = { chains: new Map<string, string[]>(), builtin: new Map<string, string[]>() };
  parseSave(
    [
      '*nat',
      ':PREROUTING ACCEPT [3:4]',
      ':DOCKER - [0:0]',
      ':KUBE-SERVICES - [0:0]',
      '-A PREROUTING -j KUBE-SERVICES',
      '-A DOCKER -j RETURN',
      '-A KUBE-SERVICES -j RETURN',
      'COMMIT',
      '',
    ].join('\n'),
    table,
  );
  assert.deepEqual([...table.chains], [['KUBE-SERVICES', ['-j RETURN']]]);
  assert.deepEqual([...table.builtin], [['PREROUTING', ['-j KUBE-SERVICES']]]);
});

describe('the dispatch tree', () => {
  test('a packet to one of ten thousand Services passes few rules', () => {
    const tree = createDispatchTree('KUBE-IP-', 'ipv4', true);
    const changes = new Map<string, string[]>();
    const below = randomNumbers(1);
    while (changes.size < 10_000) {
      const address = `10.${96 + below(16)}.${below(256)}.${below(256)}`;
      changes.set(dispatchKey(address, 'TCP', 80), [`-d ${address}/32 -j KUBE-SVC-X`]);
    }
    tree.update(changes);
    const chains = tree.render();
    let most = 0;
    for (const key of changes.keys()) {
      const path = tree.locate(key)?.chains ?? [];
      const rules = path.reduce((sum, chain) => sum + (chains.get(chain)?.length ?? 0), 0);
      most = Math.max(most, rules);
    }
    assert.ok(most <= 80, `${most} rules at worst`);
  });

  test('many ports of one address are split too', () => {
    const tree = createDispatchTree('KUBE-IP-', 'ipv6', true);
    const changes = new Map<string, string[]>();
    for (let port = 1; port <= 5000; port++) {
      changes.set(dispatchKey('fd00:96::1', port % 2 ? 'TCP' : 'UDP', port), [`-j PORT${port}`]);
    }
    tree.update(changes);
    const chains = tree.render();
    for (const rules of chains.values()) assert.ok(rules.length <= 16);
    const root = chains.get('KUBE-IP-ALL') ?? [];
    assert.match(root[0] ?? '', /^-d fd00:96::1\/128 -p udp -g KUBE-IP-/);
  });

  test('a tree after changes equals a newly built one', () => {
    const below = randomNumbers(7);
    const tree = createDispatchTree('KUBE-IP-', 'ipv4', true);
    const kernel = tree.render();
    const entries = new Map<string, string[]>();
    for (let round = 0; round < 1000; round++) {
      const changes = new Map<string, string[] | null>();
      for (let i = 1 + below(round % 20 === 0 ? 90 : 4); i > 0; i--) {
        // With distant addresses a whole subtree moves below or above another root.
        const network = below(12) ? `10.96.${below(3)}` : '203.0.113';
        const key = dispatchKey(`${network}.${below(24)}`, below(2) ? 'TCP' : 'UDP', 79 + below(3));
        const gone = below(5) < 2;
        changes.set(key, gone ? null : [`rule ${key} ${below(2)}`]);
      }
      for (const [key, rules] of changes) {
        if (rules) entries.set(key, rules);
        else entries.delete(key);
      }
      const { written, deleted } = tree.update(changes);
      for (const [chain, rules] of written) kernel.set(chain, rules);
      for (const chain of deleted) assert.ok(kernel.delete(chain), `${chain} was there`);
      const fresh = createDispatchTree('KUBE-IP-', 'ipv4', true);
      fresh.update(entries);
      assert.deepEqual(new Map([...kernel].sort()), new Map([...fresh.render()].sort()), `round ${round}`);
    }
  });
});

test('after any sequence of changes the rules equal those of a fresh start', () => {
  const below = randomNumbers(99);
  const random = (): Frontend[] => {
    const frontends: Frontend[] = [];
    for (let i = 0; i < 12; i++) {
      if (below(4) === 0) continue;
      const endpoints = Array.from({ length: below(4) }, (_, e) =>
        endpoint(`10.244.${below(2)}.${i * 4 + e}`, 8080, below(2) === 0),
      );
      const policy = (['plain', 'external-local', 'internal-local'] as const)[below(3)] ?? 'plain';
      const shared = {
        service: `s${i}`,
        endpoints,
        policy,
        affinitySeconds: below(3) ? null : 60 + below(2),
      };
      frontends.push(
        frontend({ ...shared, kind: 'ClusterIP', address: `10.96.0.${20 + below(2) * 40 + i}`, port: 80 }),
      );
      if (below(2)) frontends.push(frontend({ ...shared, kind: 'NodePort', address: null, port: 30000 + i }));
      if (below(2)) {
        const ranges = below(2) ? { allowedSources: ['192.0.2.0/24'] } : {};
        frontends.push(
          frontend({ ...shared, ...ranges, kind: 'LoadBalancer', address: `203.0.113.${i}`, port: 80 }),
        );
      }
    }
    return frontends;
  };
  let map = serviceMap(random());
  const ruleset = createRuleset(map, 'ipv4', OPTIONS);
  const kernel = ruleset.render();
  const sets = new Set(ruleset.sets.keys());
  for (let round = 0; round < 200; round++) {
    const next = serviceMap(random());
    const change = ruleset.apply(changeBetween(map, next), next);
    map = next;
    for (const table of ['nat', 'filter'] as const) {
      for (const [chain, rules] of change.written[table]) kernel[table].set(chain, rules);
      for (const chain of change.deleted[table]) assert.ok(kernel[table].delete(chain), chain);
    }
    for (const set of change.setsAdded) sets.add(set.name);
    for (const name of change.setsRemoved) sets.delete(name);
    const fresh = createRuleset(map, 'ipv4', OPTIONS);
    const wanted = fresh.render();
    for (const table of ['nat', 'filter'] as const) {
      assert.deepEqual(
        new Map([...kernel[table]].sort()),
        new Map([...wanted[table]].sort()),
        `round ${round}`,
      );
    }
    assert.deepEqual([...sets].sort(), [...fresh.sets.keys()].sort());
  }
});

test('a change of one Service writes only its chains', () => {
  const make = (i: number, endpoints: number): Frontend =>
    frontend({
      kind: 'ClusterIP',
      service: `s${i}`,
      address: `10.96.${i >> 8}.${i & 255}`,
      port: 80,
      endpoints: Array.from({ length: endpoints }, (_, e) => endpoint(`10.244.${e}.${i & 255}`, 80)),
    });
  const before = serviceMap(Array.from({ length: 1000 }, (_, i) => make(i + 20, 3)));
  const ruleset = createRuleset(before, 'ipv4', OPTIONS);
  const after = serviceMap([...before.frontends.values()].map((f, i) => (i === 500 ? make(520, 4) : f)));
  const { written, deleted } = ruleset.apply(changeBetween(before, after), after);
  assert.equal(written.nat.size, 2, 'the Service, and the chain for its new endpoint reaching itself');
  assert.equal(written.filter.size + deleted.nat.length + deleted.filter.length, 0);
});

test('addresses that the node itself answers are left out', () => {
  const map = serviceMap([
    frontend({
      kind: 'ClusterIP',
      service: 'dns',
      address: '10.96.0.10',
      port: 53,
      endpoints: [endpoint('10.244.0.5', 53)],
    }),
  ]);
  const { nat, filter } = createRuleset(map, 'ipv4', OPTIONS).render();
  assert.match(nat.get('KUBE-SERVICES')?.[0] ?? '', /^-d 10\.96\.0\.10\/32 .*-j RETURN$/);
  assert.match(filter.get('KUBE-SERVICES')?.[0] ?? '', /^-d 10\.96\.0\.10\/32 .*-j RETURN$/);
  assert.deepEqual(nat.get('KUBE-IP-ALL'), []);
  assert.deepEqual(filter.get('KUBE-CIP-ALL'), []);
  assert.equal(map.node, NODE);
});
