import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { type ResolverSettings, resolvConf } from './name-resolution.ts';

const SETTINGS: ResolverSettings = {
  clusterDns: ['10.96.0.10'],
  clusterDomain: 'cluster.local',
  nodeResolvConf: 'search corp.example\nnameserver 192.0.2.53\noptions edns0\n',
};
const CLUSTER = 'search shop.svc.cluster.local svc.cluster.local cluster.local corp.example\n';
const many = (count: number) => Array.from({ length: count }, (_, i) => `d${i}.example`);

const rows: { name: string; spec?: object; settings?: Partial<ResolverSettings>; is: string | RegExp }[] = [
  {
    name: 'by default the cluster DNS, with search path and ndots:5',
    is: `${CLUSTER}nameserver 10.96.0.10\noptions ndots:5\n`,
  },
  {
    name: "Default is the node's own",
    spec: { dnsPolicy: 'Default' },
    is: 'search corp.example\nnameserver 192.0.2.53\noptions edns0\n',
  },
  {
    name: "without a cluster DNS, the node's own",
    settings: { clusterDns: [] },
    is: 'search corp.example\nnameserver 192.0.2.53\noptions edns0\n',
  },
  {
    name: "a pod in the host's network has the node's own",
    spec: { hostNetwork: true, dnsPolicy: 'ClusterFirst' },
    is: 'search corp.example\nnameserver 192.0.2.53\noptions edns0\n',
  },
  {
    name: 'unless it asks for ClusterFirstWithHostNet',
    spec: { hostNetwork: true, dnsPolicy: 'ClusterFirstWithHostNet' },
    is: `${CLUSTER}nameserver 10.96.0.10\noptions ndots:5\n`,
  },
  {
    name: 'None takes dnsConfig alone',
    spec: {
      dnsPolicy: 'None',
      dnsConfig: {
        nameservers: ['192.0.2.1'],
        searches: ['a.test'],
        options: [{ name: 'ndots', value: '2' }, { name: 'edns0' }],
      },
    },
    is: 'search a.test\nnameserver 192.0.2.1\noptions ndots:2 edns0\n',
  },
  {
    name: 'dnsConfig adds to the policy, and its options win',
    spec: {
      dnsConfig: {
        nameservers: ['192.0.2.1', '10.96.0.10'],
        searches: ['a.test'],
        options: [{ name: 'ndots', value: '1' }],
      },
    },
    is: `${CLUSTER.trimEnd()} a.test\nnameserver 10.96.0.10\nnameserver 192.0.2.1\noptions ndots:1\n`,
  },
  {
    name: "other nodes' name servers stand behind the own one",
    settings: { clusterDns: ['10.96.0.10', 'fd00:96::a'], fallbackDns: ['10.244.1.1', '10.244.2.1'] },
    is: /nameserver 10\.96\.0\.10\nnameserver 10\.244\.1\.1\nnameserver 10\.244\.2\.1\noptions/,
  },
  {
    name: 'those that the pod asks for go before them',
    spec: { dnsConfig: { nameservers: ['192.0.2.1'] } },
    settings: { fallbackDns: ['10.244.1.1', '10.244.2.1'] },
    is: /nameserver 10\.96\.0\.10\nnameserver 192\.0\.2\.1\nnameserver 10\.244\.1\.1\noptions/,
  },
  {
    name: 'where there is room, the own server is there by its other address, too',
    settings: { clusterDns: ['10.96.0.10', 'fd00:96::a'], fallbackDns: ['10.244.1.1'] },
    is: /nameserver 10\.96\.0\.10\nnameserver 10\.244\.1\.1\nnameserver fd00:96::a\noptions/,
  },
  {
    name: 'without the cluster DNS there is no fall-back to it',
    spec: { dnsPolicy: 'Default' },
    settings: { fallbackDns: ['10.244.1.1'] },
    is: /^search corp\.example\nnameserver 192\.0\.2\.53\noptions/,
  },
  {
    name: 'no more than 32 search domains',
    spec: { dnsPolicy: 'None', dnsConfig: { nameservers: ['192.0.2.1'], searches: many(40) } },
    is: new RegExp(`^search ${many(32).join(' ')}\n`),
  },
  {
    name: 'no more than 2048 characters of them',
    spec: {
      dnsPolicy: 'None',
      dnsConfig: {
        nameservers: ['192.0.2.1'],
        searches: many(30).map((one) => `${'x'.repeat(60)}.${'y'.repeat(60)}.${one}`),
      },
    },
    is: /^search (?=[^\n]{1900,2048}\n)/,
  },
];

for (const { name, spec = {}, settings = {}, is } of rows) {
  test(name, () => {
    const pod = { metadata: { namespace: 'shop', name: 'web' }, spec: { containers: [], ...spec } } as Pod;
    const text = resolvConf(pod, { ...SETTINGS, ...settings });
    if (typeof is === 'string') assert.equal(text, is);
    else assert.match(text, is);
  });
}
