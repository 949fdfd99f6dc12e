import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StatusFacts, statusText } from './status-text.ts';

const CLUSTER = { ipFamily: 'dual', mode: 'nftables', apiPort: 40_001 } as const;
const NAME = 'a-cluster-with-a-long-name-as-generated-by-a-continuous-integration';

const FACTS: StatusFacts = {
  name: NAME,
  processes: [
    {
      name: 'a-node-with-a-long-name-as-cloud-providers-have-them',
      pid: 7,
      since: '2026-01-01T00:00:00.000Z',
      restarts: 12,
      lastExit: { at: '2026-01-01T00:00:00.000Z', reason: 'killed by SIGKILL' },
      seconds: 90,
    },
  ],
  nodes: [
    {
      name: 'a-node-with-a-long-name-as-cloud-providers-have-them',
      addresses: ['172.30.128.1', 'fd00:db8:30:128::1'],
      mode: 'nftables',
      ready: true,
      pods: 3,
    },
  ],
  services: [
    {
      namespace: 'a-namespace-with-a-long-name',
      name: 'a-service-with-a-name-of-sixty-three-characters-the-most-it-has',
      type: 'LoadBalancer',
      frontends: ['10.96.0.1:80/TCP', '[fd00:96::1]:80/TCP', 'node:30080/TCP'],
      ready: [],
      endpoints: 12,
      summary: '12 of 12 ready',
      loadBalancer: [
        { address: 'fd00:2::100', node: 'a-node-with-a-long-name-as-cloud-providers-have-them' },
      ],
    },
  ],
  ingresses: [],
  ports: [
    {
      port: 8080,
      service: { namespace: 'a-namespace-with-a-long-name', name: 'web', port: null },
      status: 'Open, waits for the Service',
    },
  ],
  egress: [{ family: 'ipv4', uplinks: ['eth0', 'eth1'], problem: null }],
  problems: [
    {
      code: 'port-closed',
      object: 'published port 8080',
      field: null,
      message: `published port 8080 is closed: another process has it; stop it, or choose another port, for cluster ${NAME}`,
    },
  ],
  warnings: [`crun 1.8.1 is older than 1.31, which fixes vulnerabilities that images can use, in ${NAME}`],
};

test('everything that status prints fits a terminal of 80 columns', () => {
  const text = statusText(FACTS, CLUSTER, { columns: 80 }).replaceAll(/\u001b\[[0-9;]*m/g, '');
  assert.deepEqual(
    text.split('\n').filter(({ length }) => length > 80),
    [],
  );
  for (const part of [
    'Running',
    'Ready',
    '12 of 12 ready',
    'fd00:2::100',
    '127.0.0.1:8080',
    'unhealthy:',
    'warning: crun 1.8.1',
  ])
    assert.ok(text.includes(part), `${part} in\n${text}`);
});

test('in a pipe every row is one line, with all columns', () => {
  const lines = statusText(FACTS, CLUSTER, { columns: null }).split('\n');
  for (const part of [
    / 12 +killed by SIGKILL at 2026/,
    / nftables +Ready +3 +172\.30\.128\.1 /,
    / LoadBalancer +12 of 12/,
  ])
    assert.ok(
      lines.some((line) => part.test(line)),
      `${part} in\n${lines.join('\n')}`,
    );
});
