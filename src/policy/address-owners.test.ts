import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { createAddressOwners } from './address-owners.ts';

const A = '10.244.1.2';
const pod = (
  uid: string,
  ips: readonly string[],
  more: { phase?: string; hostNetwork?: boolean } = {},
): Pod => ({
  metadata: { name: uid, namespace: 'x', uid },
  spec: { containers: [], ...(more.hostNetwork ? { hostNetwork: true } : {}) },
  status: { phase: more.phase ?? 'Running', podIPs: ips.map((ip) => ({ ip })) },
});

const ROWS: readonly { name: string; before: readonly Pod[]; set: Pod; reused: readonly string[] }[] = [
  { name: 'the first pod', before: [], set: pod('a', [A]), reused: [] },
  { name: 'the same pod again', before: [pod('a', [A])], set: pod('a', [A]), reused: [] },
  { name: 'the next pod', before: [pod('a', [A])], set: pod('b', [A]), reused: [A] },
  { name: 'the next pod, again', before: [pod('a', [A]), pod('b', [A])], set: pod('b', [A]), reused: [] },
  {
    name: 'a late event of the former pod',
    before: [pod('a', [A]), pod('b', [A])],
    set: pod('a', [A]),
    reused: [],
  },
  {
    name: 'the end of the former pod',
    before: [pod('a', [A]), pod('b', [A])],
    set: pod('a', [A], { phase: 'Succeeded' }),
    reused: [],
  },
  {
    name: 'a pod of the node network',
    before: [pod('a', [A])],
    set: pod('b', [A], { hostNetwork: true }),
    reused: [],
  },
];
for (const { name, before, set, reused } of ROWS)
  test(`${name} takes over ${reused.length} addresses`, () => {
    const owners = createAddressOwners();
    for (const one of before) owners.set(one);
    assert.deepEqual(owners.set(set), reused);
  });

test('a pod that was deleted is the former owner of its address', () => {
  const owners = createAddressOwners();
  owners.set(pod('a', [A]));
  owners.delete('a');
  assert.deepEqual(owners.set(pod('b', [A])), [A]);
});

test('the addresses used last are remembered', () => {
  const owners = createAddressOwners(2);
  for (let i = 1; i <= 3; i++) owners.set(pod(`a${i}`, [`10.244.1.${i}`]));
  assert.deepEqual(owners.set(pod('b1', ['10.244.1.1'])), []);
  assert.deepEqual(owners.set(pod('b3', ['10.244.1.3'])), ['10.244.1.3']);
});
