import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Client } from '../kube/client.ts';
import type { Pod, Service } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { EXTRA_SOURCES } from '../network/extra-sources.ts';
import type { RemoteAgents } from './remote-agents.ts';
import { remoteCluster } from './remote-cluster.ts';
import { neededPods, trimPod } from './remote-explain.ts';

const agents = ['n1', 'n2', 'n3'].map((node) => ({
  node,
  namespace: 'net',
  pod: `fairlead-${node}`,
  port: 1,
}));
const STATE = { mode: 'nftables', healthy: true };

/** A cluster in which n2 does not answer. */
function cluster(answers: Readonly<Record<string, unknown>>, client: Partial<Client> = {}) {
  const asked: string[] = [];
  const remote: RemoteAgents = {
    async ask({ node }, operation, body) {
      asked.push(`${node} ${operation}`);
      if (node === 'n2')
        throw new FairleadError('connection refused', { op: 'ask n2', code: 'not-running', hint: 'look' });
      const answer = answers[operation];
      return typeof answer === 'function' ? answer(node, body) : answer;
    },
    open: async () => assert.fail('not opened'),
  };
  return { asked, opened: remoteCluster('c', client as Client, agents, remote, () => {}) };
}

test('a node whose agent does not answer is one line of the reports', async () => {
  const { opened } = cluster({ state: STATE });
  assert.deepEqual(await opened.reports(), [
    { node: 'n1', state: STATE, problem: null },
    { node: 'n2', state: null, problem: 'connection refused; try: look' },
    { node: 'n3', state: STATE, problem: null },
  ]);
});

test('a switch goes on after a node that fails, and says if the mode will not stay', async () => {
  const patched: string[] = [];
  const patch = async (_resource: unknown, name: string) => {
    if (name === 'n3') throw new Error('forbidden');
    patched.push(name);
  };
  const { opened } = cluster({ mode: (_node: string, body: object) => body }, { patch } as Partial<Client>);
  const changed = await opened.changeMode('ebpf', ['n1', 'n2', 'n3'], () => {});
  assert.deepEqual(patched, ['n1']);
  assert.deepEqual(
    changed.map(({ name, mode, problem }) => [name, mode, problem?.split(/[:,]/)[0] ?? null]),
    [
      ['n1', 'ebpf', null],
      ['n2', null, 'not switched'],
      ['n3', 'ebpf', 'the mode lasts until the agent restarts'],
    ],
  );
});

const PODS = [
  pod('default', 'client', '10.0.0.1', { node: 'n1', uid: 'u1' }),
  pod('shop', 'web', '10.0.0.2', { node: 'n2', uid: 'u2' }),
  pod('other', 'db', '10.0.0.3', { node: 'n3', uid: 'u3', dnsPolicy: 'None' }),
];

function pod(
  namespace: string,
  name: string,
  ip: string,
  { node, uid, ...spec }: { node: string; uid: string; dnsPolicy?: string },
): Pod {
  return {
    metadata: { namespace, name, uid, managedFields: [{ manager: 'x' }] },
    spec: {
      nodeName: node,
      containers: [{ name: 'c', image: 'i', env: [{ name: 'SECRET', value: 's' }] }],
      ...spec,
    },
    status: { phase: 'Running', podIP: ip, podIPs: [{ ip }] },
  } as unknown as Pod;
}

const lists = async ({ plural }: { plural: string }) => ({ items: plural === 'pods' ? PODS : [] });

test('explain asks the node that answers, passes on what is missing to the node of the place, and the pods by the user', async () => {
  const bodies: { facts: unknown[]; objects: { pods: Pod[] } }[] = [];
  const place = { kind: 'pod', node: 'n3', uid: 'u1', name: 'default/client' };
  const missing = [{ kind: 'sockets', place, protocol: 'TCP' }];
  const { opened, asked } = cluster(
    {
      state: STATE,
      explain: (_node: string, body: (typeof bodies)[0]) => {
        bodies.push(body);
        return { verdict: 'delivered', askNode: 'n3', missing: body.facts.length === 0 ? missing : [] };
      },
      fact: (_node: string, body: object) => body,
    },
    { list: lists } as unknown as Partial<Client>,
  );
  const { verdict } = await opened.explain({ from: 'client', to: 'svc/web', family: null });
  assert.equal(verdict, 'delivered');
  assert.deepEqual(asked, ['n1 state', 'n1 explain', 'n3 fact', 'n3 explain']);
  assert.deepEqual(bodies[1]?.facts, [
    [
      missing[0],
      {
        request: missing[0],
        pod: {
          addresses: ['10.0.0.1'],
          nameServers: 'cluster',
          searches: [],
          options: [],
          hosts: ['127.0.0.1 localhost'],
        },
      },
    ],
  ]);
  assert.equal(JSON.stringify(bodies).includes('SECRET'), false);
});

describe('facts that no agent can read are answers with the reason', () => {
  const rows = [
    {
      name: 'a node without an agent',
      place: { kind: 'node', node: 'n9' },
      reason: /no agent runs on node n9/,
    },
    {
      name: 'a deleted pod',
      place: { kind: 'pod', node: 'n1', uid: 'x', name: 'a/b' },
      reason: /it was deleted/,
    },
    {
      name: 'name servers of a pod',
      place: { kind: 'pod', node: 'n3', uid: 'u3', name: 'other/db' },
      reason: /name servers of its own/,
    },
    {
      name: 'an agent that does not answer',
      place: { kind: 'node', node: 'n2' },
      reason: /connection refused/,
    },
  ];
  for (const { name, place, reason } of rows) {
    test(name, async () => {
      const facts: { reason?: string }[] = [];
      const { opened } = cluster(
        {
          state: STATE,
          explain: (_node: string, body: { facts: [object, { reason?: string }][] }) => {
            facts.push(...body.facts.map(([, answer]) => answer));
            const missing = facts.length === 0 ? [{ kind: 'names', place, name: 'x', family: null }] : [];
            return { verdict: 'unknown', askNode: null, missing };
          },
        },
        { list: lists } as unknown as Partial<Client>,
      );
      await opened.explain({ from: 'client', to: 'x', family: null });
      assert.match(facts[0]?.reason ?? '', reason);
    });
  }
});

const SERVICES = [
  {
    metadata: { namespace: 'other', name: 'db' },
    spec: { clusterIPs: ['10.96.0.7'], externalIPs: ['192.0.2.7'], ports: [{ port: 80, nodePort: 30007 }] },
    status: { loadBalancer: { ingress: [{ ip: '192.0.2.8' }] } },
  },
] as unknown as Service[];

describe('pods that are sent with a question', () => {
  test('are all pods, if they fit into a request', () => {
    assert.equal(neededPods(PODS, SERVICES, { from: 'client', to: 'svc/web' }).length, 3);
  });
  const rows = [
    { from: 'client', to: 'svc/web', sent: ['client'] },
    { from: 'client', to: 'svc/shop/web', sent: ['client', 'web'] },
    { from: 'client', to: 'http://web.shop/', sent: ['client', 'web'] },
    { from: '10.0.0.3', to: 'shop/web:80', sent: ['client', 'web', 'db'] },
    { from: 'node/n1', to: '10.96.0.7:80', sent: ['client', 'db'] },
    { from: 'node/n1', to: '192.0.2.7:80/UDP', sent: ['client', 'db'] },
    { from: 'node/n1', to: '192.0.2.8:80', sent: ['client', 'db'] },
    { from: '203.0.113.1', to: 'node/n2:30007', sent: ['client', 'db'] },
  ];
  for (const { from, to, sent } of rows) {
    test(`of a cluster that is too large: ${from} → ${to}`, () => {
      const names = neededPods(PODS, SERVICES, { from, to }, 10).map(({ metadata }) => metadata?.name);
      assert.deepEqual(names, sent);
    });
  }
  test('have only the fields that explain reads', () => {
    const trimmed = JSON.stringify(trimPod(PODS[0] as Pod));
    assert.match(trimmed, /"podIPs":\[\{"ip":"10\.0\.0\.1"\}\]/);
    assert.doesNotMatch(trimmed, /SECRET|managedFields/);
  });
  test('have the annotation that requests additional sources, and no other', () => {
    const annotations = { [EXTRA_SOURCES]: '192.0.2.7', other: 'SECRET' };
    const { metadata } = trimPod({ ...PODS[0], metadata: { ...PODS[0]?.metadata, annotations } } as Pod);
    assert.deepEqual(metadata?.annotations, { [EXTRA_SOURCES]: '192.0.2.7' });
  });
});

test('outside has no address in any cluster', async () => {
  const { opened } = cluster({});
  for (const to of ['outside:80', 'outside/udp', 'outside'])
    await assert.rejects(
      opened.explain({ from: 'client', to, family: null }),
      /TO is outside, which has no known address/,
    );
});
