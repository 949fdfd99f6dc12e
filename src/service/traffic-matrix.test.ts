import assert from 'node:assert/strict';
import { test } from 'node:test';
import { classify } from './classify.ts';
import { compile } from './compile.ts';
import { decide } from './decide.ts';
import type { NodeView, SourceClass } from './model.ts';
import type { ServiceSpec } from './objects.ts';
import { webService, webSlice } from './testing/objects.ts';
import { testNode } from './testing/test-node.ts';

/** all: both endpoints; local: this node's endpoint; MASQ: the server sees this node. */
type Cell = 'all' | 'all MASQ' | 'local' | 'local MASQ';
type Policy = 'plain' | 'eTP:Local' | 'iTP:Local';
type Destination = 'clusterIP' | 'nodePort' | 'LB';

/**
 * Upstream's TestInternalExternalMasquerade, in its four configurations: base, without local detection,
 * masqueradeAll, both.
 */
const MATRIX: readonly [SourceClass, Destination, Policy, base: Cell, blind: Cell, all: Cell, both: Cell][] =
  [
    ['pod', 'clusterIP', 'plain', 'all', 'all', 'all MASQ', 'all MASQ'],
    ['pod', 'nodePort', 'plain', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['pod', 'LB', 'plain', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['node', 'clusterIP', 'plain', 'all MASQ', 'all', 'all MASQ', 'all MASQ'],
    ['node', 'nodePort', 'plain', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['node', 'LB', 'plain', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['external', 'clusterIP', 'plain', 'all MASQ', 'all', 'all MASQ', 'all MASQ'],
    ['external', 'nodePort', 'plain', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['external', 'LB', 'plain', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],

    ['pod', 'clusterIP', 'eTP:Local', 'all', 'all', 'all MASQ', 'all MASQ'],
    ['pod', 'nodePort', 'eTP:Local', 'all', 'local', 'all', 'local'],
    ['pod', 'LB', 'eTP:Local', 'all', 'local', 'all', 'local'],
    ['node', 'clusterIP', 'eTP:Local', 'all MASQ', 'all', 'all MASQ', 'all MASQ'],
    ['node', 'nodePort', 'eTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['node', 'LB', 'eTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['external', 'clusterIP', 'eTP:Local', 'all MASQ', 'all', 'all MASQ', 'all MASQ'],
    ['external', 'nodePort', 'eTP:Local', 'local', 'local', 'local', 'local'],
    ['external', 'LB', 'eTP:Local', 'local', 'local', 'local', 'local'],

    ['pod', 'clusterIP', 'iTP:Local', 'local', 'local', 'local MASQ', 'local MASQ'],
    ['pod', 'nodePort', 'iTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['pod', 'LB', 'iTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['node', 'clusterIP', 'iTP:Local', 'local MASQ', 'local', 'local MASQ', 'local MASQ'],
    ['node', 'nodePort', 'iTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['node', 'LB', 'iTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['external', 'clusterIP', 'iTP:Local', 'local MASQ', 'local', 'local MASQ', 'local MASQ'],
    ['external', 'nodePort', 'iTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
    ['external', 'LB', 'iTP:Local', 'all MASQ', 'all MASQ', 'all MASQ', 'all MASQ'],
  ];

const BLIND: Partial<NodeView> = { localDetection: { mode: 'ClusterCIDR', ipv4: null, ipv6: null } };
const CONFIGURATIONS: readonly [name: string, Partial<NodeView>][] = [
  ['base', {}],
  ['without local detection', BLIND],
  ['masqueradeAll', { masqueradeAll: true }],
  ['masqueradeAll without local detection', { ...BLIND, masqueradeAll: true }],
];

const POLICIES: Readonly<Record<Policy, Partial<ServiceSpec>>> = {
  plain: {},
  'eTP:Local': { externalTrafficPolicy: 'Local' },
  'iTP:Local': { internalTrafficPolicy: 'Local' },
};

const FAMILY = {
  ipv4: {
    clusterIP: '10.96.0.1',
    LB: '203.0.113.1',
    nodePort: '192.168.0.1',
    sources: { pod: '10.244.1.9', node: '192.168.0.1', external: '198.51.100.7' },
    endpoints: ['10.244.1.2 @node-1', '10.244.2.2 @node-2'],
    local: ['10.244.1.2'],
    all: ['10.244.1.2', '10.244.2.2'],
  },
  ipv6: {
    clusterIP: 'fd00:96::1',
    LB: '2001:db8::1',
    nodePort: 'fd00:168::1',
    sources: { pod: 'fd00:244:0:1::9', node: 'fd00:168::1', external: '2001:db8:1::7' },
    endpoints: ['fd00:244:0:1::2 @node-1', 'fd00:244:0:2::2 @node-2'],
    local: ['fd00:244:0:1::2'],
    all: ['fd00:244:0:1::2', 'fd00:244:0:2::2'],
  },
};

for (const family of ['ipv4', 'ipv6'] as const) {
  const world = FAMILY[family];
  for (const [i, [configuration, change]] of CONFIGURATIONS.entries()) {
    const node = testNode(change);
    for (const [source, destination, policy, ...cells] of MATRIX) {
      const cell = cells[i] ?? 'all';
      test(`${configuration}, ${family}, ${policy}: ${source} to ${destination} reaches ${cell}`, () => {
        const spec: Partial<ServiceSpec> = {
          type: 'LoadBalancer',
          clusterIP: world.clusterIP,
          clusterIPs: [world.clusterIP],
          ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 30_080 }],
          ...POLICIES[policy],
        };
        const services = [webService(spec, {}, [{ ip: world.LB }])];
        const map = compile({ node, services, slices: [webSlice(world.endpoints)] });
        const address = world.sources[source];
        // Without detection no source is recognized as a pod: the same packet is treated as traffic from
        // outside.
        const sourceClass = classify(node, { source: address, isNodeAddress: source === 'node' });
        for (const asClass of new Set([sourceClass, source])) {
          const verdict = decide(map, {
            source: address,
            sourceClass: asClass,
            destination: world[destination],
            port: destination === 'nodePort' ? 30_080 : 80,
            protocol: 'TCP',
          });
          assert.equal(verdict.action, 'forward');
          assert.deepEqual(
            verdict.candidates.map(({ endpoint }) => endpoint.ip),
            cell.startsWith('local') ? world.local : world.all,
          );
          const masquerade = cell.endsWith('MASQ');
          assert.ok(verdict.candidates.every((candidate) => candidate.masquerade === masquerade));
        }
      });
    }
  }
}
