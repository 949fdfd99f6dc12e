import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, type Client } from '../kube/client.ts';
import { dnsFinding, withDnsFindings } from './dns-findings.ts';
import { cleanupText } from './remote-cleanup.ts';
import { resultsText } from './remote-preflight.ts';

test('nodes with the same findings are one paragraph', () => {
  const fine = [{ level: 'ok', what: 'all is well', fix: null }] as const;
  const wrong = [{ level: 'problem', what: 'it is off', fix: 'turn it on' }] as const;
  const text = resultsText([
    { node: 'n1', findings: fine, problem: null },
    { node: 'n2', findings: wrong, problem: null },
    { node: 'n3', findings: fine, problem: null },
    { node: 'n4', findings: [], problem: 'its pod does not start' },
  ]);
  assert.equal(
    text,
    `n1, n3
  ✓ all is well

n2
  ✗ it is off
      fix: turn it on

n4
  ✗ not checked: its pod does not start
`,
  );
});

test('the clean-up of nodes with the same steps is one paragraph', () => {
  const fine = [{ what: 'mode ipvs', error: null, hint: null }];
  const failed = [{ what: 'network policies', error: 'EPERM', hint: 'stop the agent' }];
  const text = cleanupText([
    { node: 'n1', result: fine, problem: null },
    { node: 'n2', result: fine, problem: null },
    { node: 'n3', result: failed, problem: null },
    { node: 'n4', result: null, problem: 'its pod does not start' },
  ]);
  assert.equal(
    text,
    `n1, n2
  ✓ mode ipvs

n3
  ✗ network policies: EPERM
    try: stop the agent

n4
  ✗ not cleaned up: its pod does not start
`,
  );
});

const DNS = { address: '10.43.0.10', source: 'Service kube-system/kube-dns' };
const dnsRows: [what: string, ...Parameters<typeof dnsFinding>, level: string, says: RegExp][] = [
  [
    'the cluster IP of DNS',
    DNS,
    { servers: ['10.43.0.10'] },
    'ok',
    /gives pods 10\.43\.0\.10, the cluster IP/,
  ],
  ['it and another', DNS, { servers: ['fd00::a', '10.43.0.10'] }, 'ok', /Service kube-system\/kube-dns/],
  [
    'the default of kubeadm',
    DNS,
    { servers: ['10.96.0.10'] },
    'problem',
    /10\.96\.0\.10, and the cluster IP of DNS is 10\.43\.0\.10/,
  ],
  ['none', DNS, { servers: [] }, 'problem', /name servers none/],
  ['a cache on the node', DNS, { servers: ['169.254.20.10'] }, 'note', /169\.254\.20\.10/],
  [
    'what is not known',
    DNS,
    { unknown: 'you may not get nodes/proxy' },
    'note',
    /cannot be read: you may not get/,
  ],
  [
    'a name server in a cluster whose range is not known',
    null,
    { servers: ['10.0.0.10'] },
    'note',
    /is not known; the kubelet gives pods .* 10\.0\.0\.10/,
  ],
];
for (const [what, dns, kubelet, level, says] of dnsRows) {
  test(`a kubelet that gives pods ${what}`, () => {
    const finding = dnsFinding(dns, kubelet);
    assert.equal(finding.level, level);
    assert.match(finding.what, says);
    assert.equal(finding.fix === null, level === 'ok');
  });
}

test('each checked node is asked for the name servers of its pods', async () => {
  const forbidden = new ApiError(403, { reason: 'Forbidden', message: 'no' }, null, 'GET');
  const client = {
    list: async () => ({ items: [] }),
    get: async () => ({ spec: { cidrs: ['10.43.0.0/16'] } }),
    async request(_: string, path: string) {
      if (path.includes('/n2/')) throw forbidden;
      return { kubeletconfig: { clusterDNS: ['10.43.0.10'] } };
    },
  } as unknown as Client;
  const nodes = ['n1', 'n2', 'n3'].map((node) => ({
    node,
    findings: [],
    problem: node === 'n3' ? 'its pod does not start' : null,
  }));
  const results = await withDnsFindings(client, nodes, new AbortController().signal);
  assert.match(results[0]?.findings[0]?.what ?? '', /the tenth address of 10\.43\.0\.0\/16/);
  assert.match(results[1]?.findings[0]?.what ?? '', /you may not get nodes\/proxy/);
  assert.deepEqual(results[2]?.findings, []);
});
