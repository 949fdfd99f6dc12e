import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from '../agent/configuration.ts';
import { KUBE_PROXY_OPTIONS, readKubeProxyFlags } from './kube-proxy-flags.ts';
import { parseWords } from './options.ts';

function flags(line: string, hasFile = false) {
  const { options, given } = parseWords(
    { name: 'agent', options: KUBE_PROXY_OPTIONS, arguments: [] },
    line.split(' ').filter((word) => word !== ''),
  );
  return readKubeProxyFlags(options, given, hasFile);
}

const CARRIED: readonly [line: string, expected: object][] = [
  [
    '--proxy-mode=nftables --cluster-cidr 10.244.0.0/16,fd00::/56 --masquerade-all',
    {
      mode: 'nftables',
      clusterCIDR: '10.244.0.0/16,fd00::/56',
      iptables: { masqueradeAll: true },
      nftables: { masqueradeAll: true },
    },
  ],
  [
    '--kubeconfig=/etc/k --iptables-localhost-nodeports=false --iptables-masquerade-bit 9',
    {
      clientConnection: { kubeconfig: '/etc/k' },
      iptables: { localhostNodePorts: false, masqueradeBit: 9 },
    },
  ],
  ['--nodeport-addresses=10.0.0.0/8,fd00::/8', { nodePortAddresses: ['10.0.0.0/8', 'fd00::/8'] }],
  ['--conntrack-max-per-core=0', { conntrack: { maxPerCore: 0 } }],
  ['--healthz-port 1234', { healthzBindAddress: '0.0.0.0:1234' }],
  ['--log-json-split-stream=false', {}],
];

for (const [line, expected] of CARRIED) {
  test(`${line} sets its fields`, () => {
    const { apiVersion: _, kind: __, ...document } = flags(line).document;
    assert.deepEqual(document, expected);
  });
}

test('a minimum period of 0 means no pause as a flag, and the default in a file', () => {
  const { document } = flags('--iptables-min-sync-period=0');
  assert.equal(readConfiguration(document).proxy?.minSyncPeriodMs, 0);
  assert.equal(
    readConfiguration({ ...document, iptables: { minSyncPeriod: '0s' } }).proxy?.minSyncPeriodMs,
    1000,
  );
});

test('an unsupported flag is rejected with the reason', () => {
  assert.throws(() => flags('--vmodule=proxier=4'), /--vmodule: the log level applies to the whole agent/);
  assert.throws(() => flags('--log-text-split-stream'), /--log-text-split-stream: the log is one stream/);
});

test('flags without effect, and flags in addition to --config, are listed in a warning', () => {
  assert.deepEqual(flags('--docker-only --storage-driver-db=x').warnings, [
    'flags without effect: --docker-only, --storage-driver-db',
  ]);
  assert.deepEqual(flags('--cluster-cidr=10.0.0.0/8 --profiling', true).warnings, [
    'flags ignored because --config is given: --cluster-cidr, --profiling',
  ]);
});
