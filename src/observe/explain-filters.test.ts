import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FilterChain, FilterCondition, FilterRule, Filters } from './filter-rules.ts';
import { ask, knownFactsOf, view } from './testing/explain-scene.ts';

const port = (value: number, operation: '==' | '!=' = '=='): FilterCondition => ({
  kind: 'compare',
  part: { load: { of: 'transport', offset: 2, length: 2 }, mask: null },
  operation,
  value: value.toString(16).padStart(4, '0'),
});
const source = (hex: string): FilterCondition => ({
  kind: 'compare',
  part: { load: { of: 'network', offset: 12, length: 4 }, mask: null },
  operation: '==',
  value: hex,
});
const device = (of: 'input' | 'output', name: string): FilterCondition => ({
  kind: 'compare',
  part: { load: { of, length: 16 }, mask: null },
  operation: '==',
  value: Buffer.from(name.padEnd(16, '\0')).toString('hex'),
});
const rule = (effect: FilterRule['effect'], ...conditions: FilterCondition[]): FilterRule => ({
  handle: 7,
  comment: null,
  conditions,
  effect,
});
const DROP = { kind: 'drop' } as const;
const ACCEPT = { kind: 'accept' } as const;
const UNKNOWN = { kind: 'unknown' } as const;

const forward = (rules: readonly FilterRule[], policy: 'accept' | 'drop' = 'accept'): FilterChain => ({
  name: 'forward',
  base: { hook: 'forward', priority: 0, policy, isNat: false },
  rules,
});
const filters = (...chains: FilterChain[]): Filters => ({
  tables: [{ family: 'inet', name: 'other', chains }],
  devices: {},
  unread: [],
});

const MASQUERADE: FilterChain = {
  name: 'post',
  base: { hook: 'postrouting', priority: 100, policy: 'accept', isNat: true },
  rules: [rule({ kind: 'source' })],
};

/** On the way from a pod of node-1 to the endpoint of Service `inside` on node-2. */
const ROWS: readonly [name: string, found: Filters, verdict: string, says: RegExp | null][] = [
  ['no tables', { tables: [], devices: {}, unread: [] }, 'delivered', null],
  ['a rule for the port', filters(forward([rule(DROP, port(8080))])), 'dropped', /rule with handle 7/],
  ['a rule for another port', filters(forward([rule(DROP, port(8081))])), 'delivered', null],
  ['the policy', filters(forward([], 'drop')), 'dropped', /policy drop/],
  ['a rule that is not simulated', filters(forward([rule(DROP, UNKNOWN)])), 'unknown', /not simulated/],
  [
    'a rule that is not simulated, and does not match anyway',
    filters(forward([rule(DROP, UNKNOWN, port(22))])),
    'delivered',
    null,
  ],
  [
    'perhaps accepted before it would be dropped',
    filters(forward([rule(ACCEPT, UNKNOWN)], 'drop')),
    'unknown',
    /not simulated/,
  ],
  ['accepted, whatever follows', filters(forward([rule(ACCEPT), rule(DROP)], 'drop')), 'delivered', null],
  ['an address of another client', filters(forward([rule(DROP, source('0af40163'))])), 'delivered', null],
  [
    'a device that is not known',
    filters(forward([rule(DROP, device('input', 'eth7'))])),
    'unknown',
    /eth7|handle 7/,
  ],
  [
    'a chain that rules jump to',
    filters(forward([rule({ kind: 'jump', chain: 'more' })]), {
      name: 'more',
      base: null,
      rules: [rule({ kind: 'reject' }, port(8080))],
    }),
    'rejected',
    /chain more/,
  ],
  [
    'a chain that returns',
    filters(forward([rule({ kind: 'jump', chain: 'more' })]), {
      name: 'more',
      base: null,
      rules: [rule({ kind: 'return' }), rule(DROP)],
    }),
    'delivered',
    null,
  ],
  [
    'chains that jump to each other',
    filters(forward([rule({ kind: 'jump', chain: 'forward' }), rule({ kind: 'jump', chain: 'forward' })])),
    'unknown',
    /more rules than are simulated/,
  ],
  ['a source that is changed', filters(MASQUERADE), 'delivered', null],
  [
    'tables that are not read',
    { tables: [], devices: {}, unread: ['more than 256 tables'] },
    'unknown',
    /256/,
  ],
];

for (const [name, found, verdict, says] of ROWS)
  test(`rules of other programs: ${name}`, () => {
    const facts = knownFactsOf(
      {},
      { filters: (place) => (place.kind === 'node' && place.node === 'node-2' ? found : undefined) },
    );
    const explanation = ask(view({ facts }), 'shop/client-1', 'shop/far-1:8080');
    assert.equal(explanation.verdict, verdict, explanation.reason);
    const causes = explanation.causes.map(({ text }) => text).join('\n');
    if (says) assert.match(causes, says);
    else assert.equal(causes, '');
  });

test('rules of other programs: the kubelet drops what comes to loopback from elsewhere, not what a node sends itself', () => {
  const loopback = (at: number, operation: '==' | '!='): FilterCondition => ({
    kind: 'compare',
    part: { load: { of: 'network', offset: at, length: 4 }, mask: 'ff000000' },
    operation,
    value: '7f000000',
  });
  // RELATED, ESTABLISHED, DNAT
  const states: FilterCondition = { kind: 'states', states: 0x86, isInverted: true };
  const output: FilterChain = {
    name: 'KUBE-FIREWALL',
    base: { hook: 'output', priority: 0, policy: 'accept', isNat: false },
    rules: [rule(DROP, loopback(12, '!='), loopback(16, '=='), states)],
  };
  const facts = knownFactsOf({}, { filters: () => filters(output) });
  const explanation = ask(view({ facts, mode: () => 'userspace' }), 'node/node-1', '127.0.0.1:30080');
  assert.equal(explanation.verdict, 'delivered', explanation.reason);
});
