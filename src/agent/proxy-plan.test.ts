import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import type { Node } from '../kube/types.ts';
import { MODE_ANNOTATION } from './mode-switch.ts';
import { opensConnections, type ProxyPlan, planProxy } from './proxy-plan.ts';

const node = (mode?: string): Node => ({
  metadata: { name: 'node-1', ...(mode === undefined ? {} : { annotations: { [MODE_ANNOTATION]: mode } }) },
  status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
});

const ROWS: readonly {
  readonly name: string;
  readonly configured: Mode;
  readonly annotation?: string;
  readonly hasPolicies?: boolean;
  readonly isKubeProxyRunning?: boolean;
  readonly plan: Partial<ProxyPlan>;
}[] = [
  {
    name: 'the mode of the configuration is used, and nothing of IPVS is adopted in others',
    configured: 'nftables',
    plan: {
      mode: 'nftables',
      families: ['ipv4'],
      adopts: { ofKubeProxy: false, ofOthers: false },
      waitsForPolicies: false,
      removesKubeProxy: true,
    },
  },
  {
    name: "the node's annotation has precedence over the configuration",
    configured: 'nftables',
    annotation: 'iptables',
    plan: { mode: 'iptables' },
  },
  {
    name: 'an annotation that names no mode is ignored',
    configured: 'nftables',
    annotation: 'fastest',
    plan: { mode: 'nftables' },
  },
  {
    name: 'IPVS servers of earlier programs are adopted in IPVS mode',
    configured: 'ipvs',
    plan: { adopts: { ofKubeProxy: true, ofOthers: true } },
  },
  {
    name: 'of a kube-proxy that runs, neither servers are adopted nor rules removed',
    configured: 'ipvs',
    isKubeProxyRunning: true,
    plan: { adopts: { ofKubeProxy: false, ofOthers: true }, removesKubeProxy: false },
  },
  {
    name: 'a mode that opens connections itself waits for the policies that it checks',
    configured: 'userspace',
    hasPolicies: true,
    plan: { waitsForPolicies: true },
  },
  {
    name: 'other modes do not wait for policies',
    configured: 'nftables',
    hasPolicies: true,
    plan: { waitsForPolicies: false },
  },
];
for (const { name, configured, annotation, hasPolicies = false, isKubeProxyRunning = false, plan } of ROWS) {
  test(name, () => {
    const made = planProxy({ mode: configured }, { node: node(annotation), hasPolicies, isKubeProxyRunning });
    for (const [field, value] of Object.entries(plan))
      assert.deepEqual(made[field as keyof ProxyPlan], value, field);
  });
}

test('userspace mode alone opens connections itself', () => {
  const modes: readonly Mode[] = ['nftables', 'iptables', 'userspace', 'ipvs', 'ebpf'];
  assert.deepEqual(modes.filter(opensConnections), ['userspace']);
});
