import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openRemoteCheck } from './remote-check.ts';
import type { RemoteCluster } from './remote-cluster.ts';

const node = (name: string, { ready = true, unschedulable = false } = {}) => ({
  metadata: { name },
  spec: { unschedulable },
  status: {
    addresses: [{ type: 'InternalIP', address: '192.0.2.1' }],
    conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
  },
});

/** n0 does not answer. */
function cluster(
  nodes: readonly object[],
  asked: string[] = [],
  ofNode: (name: string) => object = () => ({ enforcesPolicies: true }),
): RemoteCluster {
  const lists: Readonly<Record<string, readonly object[]>> = {
    nodes,
    servicecidrs: [{ spec: { cidrs: ['10.96.0.0/16', 'fd00:96::/112'] } }],
  };
  const objects: Readonly<Record<string, object>> = {
    services: { spec: { clusterIPs: ['10.96.0.1'] } },
    pods: { spec: { containers: [{ image: 'registry/fairlead:1' }] } },
  };
  return {
    agents: [{ node: 'n0', namespace: 'net', pod: 'fairlead-x', port: 1 }],
    client: {
      list: async ({ plural }: { plural: string }) => ({ items: lists[plural] ?? [] }),
      get: async ({ plural }: { plural: string }) => objects[plural],
    },
    reports: async () =>
      nodes.map((one) => {
        const { name } = (one as ReturnType<typeof node>).metadata;
        return { node: name, state: name === 'n0' ? null : { node: name, mode: 'ebpf' }, problem: null };
      }),
    async ask(name: string, operation: string, body?: { pod?: unknown }) {
      asked.push(`${name} ${operation}${body?.pod === undefined ? '' : ` ${JSON.stringify(body.pod)}`}`);
      return operation === 'settings'
        ? {
            ...{ addresses: ['192.0.2.1', '10.0.0.1'], masqueradeAll: false, localDetection: true },
            ...ofNode(name),
          }
        : { kind: 'refused' };
    },
  } as unknown as RemoteCluster;
}

const never = new AbortController().signal;

test('the check uses at most three nodes that are ready and whose agents answer, and the image of the agents', async () => {
  const nodes = [
    node('n0'),
    node('n1', { ready: false }),
    node('n2', { unschedulable: true }),
    ...['n3', 'n4', 'n5', 'n6'].map((name) => node(name)),
  ];
  const { services, modes } = await openRemoteCheck(cluster(nodes), never);
  assert.deepEqual(
    services.nodes.map(({ name }) => name),
    ['n3', 'n4', 'n5'],
  );
  assert.deepEqual(
    [...modes],
    [
      ['n3', 'ebpf'],
      ['n4', 'ebpf'],
      ['n5', 'ebpf'],
    ],
  );
  assert.deepEqual(services.families, ['ipv4', 'ipv6']);
  assert.deepEqual([...(await services.allAddresses('n3'))], ['192.0.2.1', '10.0.0.1']);
  const { image, args, securityContext } = services.echo(8080, 'hello');
  assert.deepEqual([image, args], ['registry/fairlead:1', ['echo', '--port=8080', '--message=hello']]);
  assert.equal(securityContext?.runAsNonRoot, true);
});

test('no agent answers: an error', async () => {
  await assert.rejects(
    openRemoteCheck(cluster([node('n0')]), never),
    /no agent answers on a ready node; agents in the cluster: 1/,
  );
});

test('the agents send the packets of pods and nodes, until the command is interrupted', async () => {
  const asked: string[] = [];
  const end = new AbortController();
  const { probe, oracle } = await openRemoteCheck(cluster([node('n3')], asked), end.signal);
  const target = { protocol: 'TCP', family: 'ipv4', address: '10.96.0.9', port: 80, patience: 1 } as const;
  const place = { name: 'x', node: 'n3', addresses: { ipv4: '10.0.0.9' } };
  await probe({ ...target, from: { ...place, kind: 'pod' } });
  await probe({ ...target, from: { ...place, kind: 'node' } });
  assert.deepEqual(asked, ['n3 settings', 'n3 probe ["10.0.0.9"]', 'n3 probe null']);
  end.abort();
  await assert.rejects(probe({ ...target, from: { ...place, kind: 'pod' } }), { code: 'interrupted' });
  await assert.rejects(oracle.decide('n3', []), { code: 'interrupted' });
});

test('the pods of network policies are admitted by the strictest standard, and serve ports below 1024', async () => {
  const { policies } = await openRemoteCheck(cluster([node('n3')]), never);
  assert.ok(policies);
  const { containers, securityContext } = policies.pod([{ name: 'http', containerPort: 80 }]);
  assert.deepEqual(securityContext?.sysctls, [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }]);
  assert.deepEqual(
    containers.map(({ args, ports }) => [args, ports]),
    [
      [['echo', '--port=80', '--udp-port=53'], [{ name: 'http', containerPort: 80 }]],
      [['echo', '--port=81', '--udp-port=80'], undefined],
      [['echo', '--port=82', '--udp-port=82'], undefined],
    ],
  );
  for (const { securityContext: ofContainer } of containers) {
    assert.equal(ofContainer?.runAsNonRoot, true);
    assert.deepEqual(ofContainer.capabilities, { drop: ['ALL'] });
  }
  const place = { name: 'fairlead-check-x/a', kind: 'pod', node: 'n3', addresses: {} } as const;
  assert.equal(policies.serverName(place), 'x-a');
});

const withoutPolicies: [what: string, settings: (name: string) => object][] = [
  ['no agent enforces them', () => ({ enforcesPolicies: false })],
  ['one agent does not enforce them', (name) => ({ enforcesPolicies: name === 'n3' })],
  ['an agent of an earlier version does not say it', () => ({})],
];
for (const [what, settings] of withoutPolicies) {
  test(`network policies are not checked: ${what}`, async () => {
    const nodes = [node('n3'), node('n4')];
    assert.equal((await openRemoteCheck(cluster(nodes, [], settings), never)).policies, null);
  });
}
