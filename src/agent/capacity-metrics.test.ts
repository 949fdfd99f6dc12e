import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Registry } from 'prom-client';
import { ADDRESS_ALLOCATED } from '../kube/load-balancer.ts';
import type { Service } from '../kube/types.ts';
import { createAuthority } from '../lib/pki.ts';
import {
  registerCertificates,
  registerConnectionTable,
  registerPodAddresses,
  registerPools,
} from './capacity-metrics.ts';
import { readConfiguration } from './configuration.ts';

/** Returns the series of a registry: "name{labels}" → value. */
async function seriesOf(register: (registry: Registry) => void): Promise<Record<string, number>> {
  const registry = new Registry();
  register(registry);
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(
    lines.map((line) => [
      line.slice(0, line.lastIndexOf(' ')),
      Number(line.slice(line.lastIndexOf(' ') + 1)),
    ]),
  );
}

describe('the table of connections', () => {
  const rows: readonly (readonly [string, Readonly<Record<string, string>>, Record<string, number>])[] = [
    [
      'its entries and its limit',
      { 'net.netfilter.nf_conntrack_count': '12', 'net.netfilter.nf_conntrack_max': '100' },
      { fairlead_conntrack_entries: 12, fairlead_conntrack_limit: 100 },
    ],
    ['a kernel that does not track connections has no series', {}, {}],
  ];
  for (const [what, settings, series] of rows) {
    test(what, async () => {
      const found = await seriesOf((registry) =>
        registerConnectionTable(registry, (name) => settings[name] ?? null),
      );
      assert.deepEqual(found, series);
    });
  }
});

test("the addresses of the node's pod networks, and those in use", async () => {
  const found = await seriesOf((registry) =>
    registerPodAddresses(registry, () => [{ network: '10.244.1.0/24', size: 253n, used: 250 }]),
  );
  assert.deepEqual(found, {
    'fairlead_pod_network_addresses{network="10.244.1.0/24"}': 253,
    'fairlead_pod_network_used_addresses{network="10.244.1.0/24"}': 250,
  });
});

const pool = (...addresses: string[]) => ({
  addresses,
  autoAssign: true,
  serviceAllocation: { priority: 0, namespaces: [], namespaceSelectors: [], serviceSelectors: [] },
});

/** A Service of type LoadBalancer; `reason`: why it lacks an address. */
const service = (name: string, addresses: readonly string[], reason: string | null = null): Service => ({
  metadata: { name, namespace: 'default' },
  spec: { type: 'LoadBalancer' },
  status: {
    conditions: [
      {
        type: ADDRESS_ALLOCATED,
        status: reason === null ? 'True' : 'False',
        reason: reason ?? 'Allocated',
        message: '',
        lastTransitionTime: '2026-01-01T00:00:00Z',
      },
    ],
    loadBalancer: { ingress: addresses.map((ip) => ({ ip, ipMode: 'VIP' })) },
  },
});

describe('the addresses of load balancers', () => {
  const IN_USE: readonly (readonly [string, readonly Service[], Record<string, number>])[] = [
    ['none', [], { used: 0, other: 0, assigned: 0, exhausted: 0 }],
    [
      'an address that two Services share counts once',
      [service('a', ['192.0.2.1']), service('b', ['192.0.2.1'])],
      { used: 1, other: 0, assigned: 1, exhausted: 0 },
    ],
    [
      'a full pool, and a Service that waits',
      [service('a', ['192.0.2.1']), service('b', ['192.0.2.2']), service('c', [], 'PoolExhausted')],
      { used: 2, other: 0, assigned: 2, exhausted: 1 },
    ],
    [
      'a reason that a user wrote into a status makes no series',
      [service('a', [], 'Made"Up')],
      { used: 0, other: 0, assigned: 0, exhausted: 0 },
    ],
  ];
  for (const [what, services, { used, other, assigned, exhausted }] of IN_USE) {
    test(what, async () => {
      const found = await seriesOf((registry) =>
        registerPools(
          registry,
          { main: pool('192.0.2.0/30'), other: pool('2001:db8::1-2001:db8::9') },
          () => services,
        ),
      );
      const waiting = (reason: string) => `fairlead_load_balancer_waiting_services{reason="${reason}"}`;
      assert.deepEqual(found, {
        'fairlead_load_balancer_pool_addresses{pool="main"}': 2,
        'fairlead_load_balancer_pool_addresses{pool="other"}': 9,
        'fairlead_load_balancer_pool_used_addresses{pool="main"}': used,
        'fairlead_load_balancer_pool_used_addresses{pool="other"}': other,
        fairlead_load_balancer_assigned_addresses: assigned,
        [waiting('InvalidRequest')]: 0,
        [waiting('AddressNotInPool')]: 0,
        [waiting('AddressTaken')]: 0,
        [waiting('NoPool')]: 0,
        [waiting('PoolExhausted')]: exhausted,
      });
    });
  }
});

describe('certificates', () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-certificates-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const authority = createAuthority('test', new Date('2026-01-01T00:00:00Z'));
  const { cert, key } = authority.issue({ commonName: 'system:node:node-1', usage: 'client' });
  const files = { cert: join(folder, 'tls.crt'), key: join(folder, 'tls.key') };
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key);
  const kubeconfig = (name: string, user: object) => {
    const path = join(folder, name);
    const context = { name: 'a', context: { cluster: 'a', user: 'a' } };
    const clusters = [{ name: 'a', cluster: { server: 'https://192.0.2.1:6443' } }];
    const text = { clusters, users: [{ name: 'a', user }], contexts: [context], 'current-context': 'a' };
    writeFileSync(path, JSON.stringify(text));
    return path;
  };
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  const own = kubeconfig('own', {
    'client-certificate-data': base64(cert),
    'client-key-data': base64(key),
  });
  const torn = join(folder, 'torn');
  writeFileSync(torn, '{');
  mkdirSync(join(folder, 'state'));
  const rows: readonly (readonly [string, object, readonly string[]])[] = [
    ['that of the kubeconfig', { kubeconfig: own }, ['client']],
    ['a kubeconfig with a token has none', { kubeconfig: kubeconfig('token', { token: 'a' }) }, []],
    [
      'a kubeconfig that cannot be read does not keep the other metrics from Prometheus',
      { kubeconfig: torn },
      [],
    ],
    [
      'that of the announcer of addresses',
      { loadBalancer: { kubeconfig: own }, kubeconfig: torn },
      ['announcer'],
    ],
  ];
  for (const [what, fields, names] of rows) {
    test(what, async () => {
      const configuration = readConfiguration(
        {
          apiVersion: 'fairlead.dev/v1alpha1',
          kind: 'AgentConfiguration',
          stateDir: join(folder, 'state'),
          proxy: {},
          ...fields,
        },
        { NODE_NAME: 'node-1' },
      );
      const found = await seriesOf((registry) => registerCertificates(registry, configuration));
      assert.deepEqual(
        Object.keys(found),
        ['not_after', 'not_before'].flatMap((which) =>
          names.map((name) => `fairlead_certificate_${which}_seconds{certificate="${name}"}`),
        ),
      );
      for (const name of names) {
        const [from = 0, until = 0] = ['not_before', 'not_after'].map(
          (which) => found[`fairlead_certificate_${which}_seconds{certificate="${name}"}`],
        );
        assert.equal(from < until, true, `${from} to ${until}`);
      }
    });
  }
});
