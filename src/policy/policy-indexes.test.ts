import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAddressClaims } from './address-claims.ts';
import { createGroupMembers, type GroupMember } from './group-members.ts';
import { createIsolation, type IsolatedBy, NOT_ISOLATED, withPolicy } from './isolation.ts';
import type { PodGroup, PolicyPod } from './model.ts';
import { createPodIndex } from './pod-index.ts';
import { createPortNames } from './port-names.ts';

const podOf = (key: string, labels: Record<string, string>): PolicyPod => ({
  key,
  namespace: key.split('/')[0] ?? '',
  node: 'node-1',
  labels,
  addresses: [],
  ports: [],
});

test('the latest pod that claims an address has it, and the others are told', () => {
  const changed: string[] = [];
  const claims = createAddressClaims((key) => changed.push(key));
  claims.replace('x/a', [], ['10.0.0.1']);
  claims.replace('x/b', [], ['10.0.0.1']);
  assert.equal(claims.ownerOf('10.0.0.1'), 'x/b');
  assert.deepEqual(changed, ['x/a']);
  claims.replace('x/b', ['10.0.0.1'], ['10.0.0.2']);
  assert.equal(claims.ownerOf('10.0.0.1'), 'x/a');
  assert.deepEqual(changed, ['x/a', 'x/a']);
  claims.replace('x/a', ['10.0.0.1'], []);
  assert.equal(claims.ownerOf('10.0.0.1'), null);
});

function membersOf(...pods: readonly PolicyPod[]) {
  const namespaces = new Map([
    ['x', { team: 'blue' }],
    ['y', { team: 'red' }],
  ]);
  const labels = { keys: () => namespaces.keys(), of: (name: string) => namespaces.get(name) ?? null };
  const index = createPodIndex<GroupMember>(labels);
  const changed: string[] = [];
  const members = pods.map((pod): GroupMember => ({ pod, groups: [] }));
  for (const member of members) index.add(member);
  const groups = createGroupMembers(index, labels, ({ pod }) => changed.push(pod.key));
  return { groups, members, changed, namespaces, index };
}

const BLUE_WEB: PodGroup = {
  id: 'blue-web',
  pods: { matchLabels: { app: 'web' } },
  namespaces: { matchLabels: { team: 'blue' } },
};

test('a group is added to its members at its first use and removed at its last', () => {
  const { groups, members, changed } = membersOf(
    podOf('x/a', { app: 'web' }),
    podOf('x/b', { app: 'db' }),
    podOf('y/a', { app: 'web' }),
  );
  groups.retain(BLUE_WEB);
  groups.retain(BLUE_WEB);
  assert.deepEqual(
    members.map((one) => one.groups),
    [['blue-web'], [], []],
  );
  assert.deepEqual(changed, ['x/a']);
  groups.release(BLUE_WEB);
  assert.deepEqual(changed, ['x/a']);
  groups.release(BLUE_WEB);
  assert.deepEqual(
    members.map((one) => one.groups),
    [[], [], []],
  );
  assert.deepEqual(changed, ['x/a', 'x/a']);
});

test('a new pod, and one whose namespace has other labels, get the groups in use', () => {
  const { groups, members, namespaces, index } = membersOf(podOf('y/a', { app: 'web' }));
  groups.retain(BLUE_WEB);
  const added: GroupMember = { pod: podOf('x/c', { app: 'web' }), groups: [] };
  index.add(added);
  groups.refresh(added);
  assert.deepEqual(added.groups, ['blue-web']);
  for (const member of members) groups.refresh(member);
  assert.deepEqual(members[0]?.groups, []);
  namespaces.set('y', { team: 'blue' });
  groups.forgetNamespace('y');
  for (const member of members) groups.refresh(member);
  assert.deepEqual(members[0]?.groups, ['blue-web']);
});

test('a policy is active from the first pod that it isolates to the last', () => {
  const events: string[] = [];
  const isolation = createIsolation<{ name: string; isolatedBy: IsolatedBy }>({
    changed: ({ name }) => events.push(name),
    activated: (policy, isActive) => events.push(`${policy} ${isActive}`),
  });
  const [a, b] = ['a', 'b'].map((name) => ({ name, isolatedBy: NOT_ISOLATED }));
  assert.ok(a && b);
  isolation.set(a, { ingress: ['p'], egress: ['p'] });
  isolation.set(b, { ingress: ['p'], egress: [] });
  isolation.set(b, { ingress: ['p'], egress: [] });
  assert.deepEqual(events, ['a', 'p true', 'b']);
  assert.deepEqual([...isolation.podsOf('p')], [a, b]);
  isolation.set(a, NOT_ISOLATED);
  assert.deepEqual([...isolation.pods], [b]);
  isolation.set(b, NOT_ISOLATED);
  assert.deepEqual(events, ['a', 'p true', 'b', 'a', 'b', 'p false']);
  assert.equal(isolation.isActive('p'), false);
});

test('a policy that a pod keeps takes the place of its new priority', () => {
  const order = ['a', 'b', 'c'];
  const compare = (one: string, other: string) => order.indexOf(one) - order.indexOf(other);
  const policy = { ingress: [], egress: null } as unknown as Parameters<typeof withPolicy>[2];
  const before: IsolatedBy = { ingress: ['a', 'c', 'b'], egress: ['b', 'c'] };
  assert.deepEqual(withPolicy(before, 'b', policy, compare), { ingress: ['a', 'b', 'c'], egress: ['c'] });
  assert.deepEqual(withPolicy(before, 'b', null, compare), { ingress: ['a', 'c'], egress: ['c'] });
});

test('the first and the last use of a port name are reported', () => {
  const changed: string[] = [];
  const names = createPortNames((port) => changed.push(port));
  for (const by of [1, 1, -1, -1] as const) names.count('http/TCP', by);
  assert.deepEqual(changed, ['http/TCP', 'http/TCP']);
  assert.equal(names.has('http/TCP'), false);
});
