import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ClusterRequest, planCluster } from './plan.ts';
import { programArguments } from './program-arguments.ts';
import { CLUSTER_REQUEST } from './testing/cluster-request.ts';

const REQUEST: ClusterRequest = { ...CLUSTER_REQUEST, name: 'demo', nodes: 1 };

describe('the arguments of the programs of a real control plane', () => {
  const rows: readonly (readonly [string, Partial<ClusterRequest>, string, readonly string[]])[] = [
    [
      'IPv4',
      {},
      'kube-controller-manager',
      ['--cluster-cidr=10.244.0.0/16', '--service-cluster-ip-range=10.96.0.0/16', '--node-cidr-mask-size=24'],
    ],
    ['more pods', { maxPods: 1000 }, 'kube-controller-manager', ['--node-cidr-mask-size=22']],
    [
      'IPv6',
      { ipFamily: 'ipv6' },
      'kube-controller-manager',
      ['--cluster-cidr=fd00:10:244::/56', '--node-cidr-mask-size=64'],
    ],
    [
      'both families',
      { ipFamily: 'dual' },
      'kube-controller-manager',
      [
        '--cluster-cidr=10.244.0.0/16,fd00:10:244::/56',
        '--node-cidr-mask-size-ipv4=24',
        '--node-cidr-mask-size-ipv6=64',
      ],
    ],
    [
      'IPv4',
      { apiPort: 6450 },
      'kube-apiserver',
      [
        '--bind-address=0.0.0.0',
        '--secure-port=6450',
        '--advertise-address=172.30.0.1',
        '--authorization-mode=Node,RBAC',
        '--enable-admission-plugins=NodeRestriction',
      ],
    ],
    [
      'IPv6',
      { ipFamily: 'ipv6' },
      'kube-apiserver',
      ['--bind-address=::', '--advertise-address=fd00:172:30::1'],
    ],
    [
      'without RBAC',
      { authorization: 'AlwaysAllow' },
      'kube-apiserver',
      ['--authorization-mode=AlwaysAllow'],
    ],
  ];
  for (const [title, change, program, wanted] of rows) {
    test(`${program}: ${title}`, () => {
      const state = planCluster({ ...REQUEST, ...change }, [], '1', new Date(0));
      const words = programArguments(state, program);
      assert.deepEqual(
        wanted.filter((word) => !words.includes(word)),
        [],
        words.join(' '),
      );
    });
  }
});
