import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  EGRESS_NAMES,
  egressNamesProblems,
  MAX_EGRESS_NAMES,
  parseEgressNames,
} from '../kube/egress-names.ts';
import { egressNameRules } from './egress-names.ts';
import { readPolicy } from './policy-reader.ts';

/** Returns the rules as text: "a.example,b.example TCP 443-443". */
const shown = (text: string) =>
  egressNameRules(text).map(({ peers, ports }) => {
    const names = (peers ?? []).map((peer) => (peer.kind === 'names' ? peer.group.patterns.join() : '?'));
    const port = (ports ?? []).map((one) =>
      one.kind === 'range' ? `${one.protocol} ${one.first}-${one.last}` : '?',
    );
    return [...names, ...port].join(' ');
  });

test('the names of each port are a rule; what is malformed allows nothing and is named', () => {
  const rows: readonly (readonly [text: string, rules: string[], refused: number])[] = [
    ['api.example.com', ['api.example.com'], 0],
    [
      'b.example.com:443, A.example.com.:443\n*.example.org:53/UDP',
      ['a.example.com,b.example.com TCP 443-443', '*.example.org UDP 53-53'],
      0,
    ],
    ['a.example.com:8000-8100/SCTP', ['a.example.com SCTP 8000-8100'], 0],
    [' , ,, ', [], 0],
    ['', [], 0],
    ['localhost, ok.example.com', ['ok.example.com'], 1],
    ['10.0.0.0/8', [], 1],
    ['https://a.example.com', [], 1],
    [
      'a.example.com:0, a.example.com:65536, a.example.com:9-8, a.example.com:443/ICMP, a.example.com:',
      [],
      5,
    ],
    ['*', [], 1],
    [`${'a'.repeat(100_000)}`, [], 1],
    [
      Array.from({ length: MAX_EGRESS_NAMES + 2 }, (_, i) => `n${i}.example.com:${i + 1}`).join(),
      Array.from({ length: MAX_EGRESS_NAMES }, (_, i) => `n${i}.example.com TCP ${i + 1}-${i + 1}`),
      1,
    ],
  ];
  for (const [text, rules, refused] of rows) {
    assert.deepEqual(shown(text), rules, text.slice(0, 80));
    assert.equal(parseEgressNames(text).refused.length, refused, text.slice(0, 80));
  }
  assert.ok((parseEgressNames('a'.repeat(100_000)).refused[0] ?? '').length < 200, 'messages are bounded');
});

test('the annotation adds to a policy that isolates for egress, and isolates by itself for nothing', () => {
  const metadata = { name: 'p', namespace: 'x', annotations: { [EGRESS_NAMES]: 'api.example.com' } };
  const isolating = readPolicy({ metadata, spec: { podSelector: {}, policyTypes: ['Egress'] } });
  assert.equal(isolating.egress?.length, 1);
  assert.equal(isolating.egress?.[0]?.field, `metadata.annotations[${EGRESS_NAMES}]`);
  assert.equal(readPolicy({ metadata, spec: { podSelector: {}, policyTypes: ['Ingress'] } }).egress, null);
  assert.equal(readPolicy({ metadata, spec: { podSelector: {} } }).egress, null);
  const other = readPolicy({
    metadata: { ...metadata, annotations: { [EGRESS_NAMES]: 'api.example.org' } },
    spec: { podSelector: {}, policyTypes: ['Egress'] },
  });
  assert.notEqual(isolating.hash, other.hash, 'the kernel gets the change');
});

test('an annotation, or a part of it, that has no effect is named', () => {
  const dns = { ports: [{ port: 53, protocol: 'UDP' }] };
  const rows: readonly (readonly [names: string, spec: object, expected: RegExp[]])[] = [
    ['a.example.com', { policyTypes: ['Egress'], egress: [dns] }, []],
    ['a.example.com', { egress: [{}] }, []],
    ['a.example.com', { policyTypes: ['Egress'] }, [/no rule of spec\.egress allows port 53 over UDP/]],
    ['a.example.com', { policyTypes: ['Ingress'], egress: [dns] }, [/does not contain Egress/]],
    ['a.example.com', {}, [/does not contain Egress/]],
    [
      'https://a.example.com',
      { policyTypes: ['Egress'], egress: [dns] },
      [/"https:\/\/a\.example\.com" is not a name/],
    ],
    [
      Array.from({ length: 60 }, () => 'x').join(),
      { policyTypes: ['Egress'], egress: [dns] },
      [...Array.from({ length: 10 }, () => /"x" is not/), /and 50 more/],
    ],
  ];
  for (const [names, spec, expected] of rows) {
    const found = egressNamesProblems({ metadata: { annotations: { [EGRESS_NAMES]: names } }, spec });
    assert.equal(found.length, expected.length, found.join());
    for (const [i, pattern] of expected.entries()) assert.match(found[i] ?? '', pattern);
  }
  assert.deepEqual(egressNamesProblems({ spec: {} }), []);
});
