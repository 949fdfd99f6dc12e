import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentReport, RemoteCluster } from '../cluster/remote-cluster.ts';
import { remoteStatus, remoteStatusText } from './remote-status.ts';

const output = {
  out: () => {},
  err: () => {},
  raw: () => {},
  interactive: false,
  columns: null,
  unread: new AbortController().signal,
};
const node = (name: string, ready = true) => ({
  metadata: { name },
  status: {
    addresses: [{ type: 'InternalIP', address: `192.0.2.${name.slice(1)}` }],
    conditions: [{ type: 'Ready', status: ready ? 'True' : 'False', message: 'kubelet stopped' }],
  },
});
const finding = {
  object: { kind: 'Service', namespace: 'shop', name: 'web' },
  message: 'spec.ports[0].port: 0 is not a port',
};
const state = {
  mode: 'nftables',
  version: '1',
  healthy: true,
  problem: null,
  frontends: 3,
  lastProgrammed: '2026-01-01T00:00:00Z',
  findings: [],
};

const FINDING = {
  code: 'service-invalid',
  object: 'Service shop/web',
  field: 'spec.ports[0].port',
  message: 'Service shop/web: spec.ports[0].port: 0 is not a port',
} as const;

function cluster(reports: readonly unknown[], nodes: readonly object[], services: readonly object[] = []) {
  const lists: Readonly<Record<string, readonly object[]>> = { nodes, services };
  return {
    context: 'prod',
    agents: reports,
    reports: async () => reports as AgentReport[],
    client: { list: async ({ plural }: { plural: string }) => ({ items: lists[plural] ?? [] }) },
  } as unknown as RemoteCluster;
}

test('a healthy cluster', async () => {
  const reports = [{ node: 'n1', state, problem: null }];
  const status = await remoteStatus(cluster(reports, [node('n1')], [{ metadata: { name: 'a' }, spec: {} }]));
  assert.deepEqual(status.problems, []);
  assert.equal(
    remoteStatusText(status, Date.parse('2026-01-01T00:05:00Z'), output),
    [
      'context prod: 1 node, 1 Service\n',
      'NODE  MODE      STATUS  FRONTENDS  PROGRAMMED  VERSION  ADDRESSES',
      'n1    nftables  Ready   3          5 min ago   1        192.0.2.1\n',
      'everything is healthy\n',
    ].join('\n'),
  );
});

test('each problem is one line: nodes, agents, findings, Services; many are counted', async () => {
  const selector = { metadata: { namespace: 'shop', name: 'web' }, spec: { selector: { app: 'web' } } };
  const reports = [
    {
      node: 'n1',
      state: { ...state, healthy: false, problem: 'nf_tables is full', findings: [finding] },
      problem: null,
    },
    { node: 'n2', state: null, problem: 'connection refused' },
  ];
  const nodes = [node('n1'), node('n2', false), node('n3')];
  const status = await remoteStatus(cluster(reports, nodes, [selector]));
  assert.deepEqual(
    status.problems.map(({ message }) => message),
    [
      'n1: the agent is unhealthy: nf_tables is full',
      'n2: not ready: kubelet stopped; see: kubectl describe node n2',
      'n2: connection refused',
      'n3: no agent runs on this node',
      'Service shop/web: spec.ports[0].port: 0 is not a port',
      'Service shop/web: no ready endpoint; no pod has the labels app=web: create one, or correct the selector',
    ],
  );
  assert.deepEqual(status.problems[4], FINDING);
  const many = {
    ...status,
    problems: Array.from({ length: 25 }, (_, i) => ({ ...FINDING, message: `problem ${i}` })),
  };
  assert.match(remoteStatusText(many, 0, output), /problem 19\n {2}5 more: -o json\n$/);
});
