import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { EGRESS_GATEWAYS, type EgressGatewayObject } from '../src/kube/egress-gateway.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane();
});
after(() => plane.close());

const gateway = (name: string, spec: object): EgressGatewayObject => ({
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'EgressGateway',
  metadata: { name },
  spec,
});

test('a cluster serves EgressGateways from its start, and refuses what no node could apply', async () => {
  const create = (one: EgressGatewayObject) => plane.client.create(EGRESS_GATEWAYS, one);
  await eventually(
    () => plane.client.list(EGRESS_GATEWAYS).catch(() => null),
    (list) => list !== null,
  );
  const made = await create(
    gateway('partner', {
      podSelector: { matchLabels: { app: 'web' } },
      destinationCIDRs: ['203.0.113.0/24'],
      addresses: ['172.30.0.50', 'fd00:172:30::50'],
    }),
  );
  assert.equal(made.metadata?.generation, 1);
  const rows: [spec: object, message: RegExp][] = [
    [{}, /spec\.addresses: Required value/],
    [{ addresses: [] }, /at least 1 items/],
    [{ addresses: ['172.30.0.500'] }, /each must be an IP address/],
    [{ addresses: ['172.30.0.50'], destinationCIDRs: ['203.0.113.0'] }, /each must be a network/],
    [{ addresses: ['172.30.0.50'], exceptCIDRs: ['x/8'] }, /each must be a network/],
    [{ addresses: ['172.30.0.50', '172.30.0.50'] }, /Duplicate value/],
    [{ addresses: Array.from({ length: 17 }, (_, i) => `172.30.0.${i + 9}`) }, /at most 16 items/],
    [
      { addresses: ['172.30.0.50'], podSelector: { matchExpressions: [{ key: 'a', operator: 'Near' }] } },
      /Unsupported value: "Near"/,
    ],
  ];
  for (const [spec, message] of rows) await assert.rejects(create(gateway('bad', spec)), message);
  // The status is a part of its own.
  const patch = { status: { nodes: 'node-1', portsInUse: { '172.30.0.50': 7 } } };
  await plane.client.patch(EGRESS_GATEWAYS, 'partner', 'merge', patch, { subresource: 'status' });
  const found = await plane.client.get(EGRESS_GATEWAYS, 'partner');
  assert.deepEqual(found.status, patch.status);
});
