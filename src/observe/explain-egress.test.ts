import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EgressView } from '../egress/model.ts';
import { parseCidr } from '../lib/address.ts';
import { ask, view } from './testing/explain-scene.ts';

const cidrs = (...texts: string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
const egress = (holders: Record<string, string>, address: string | null = '192.168.0.50'): EgressView => ({
  gateways: [
    { name: 'partner', destinations: null, except: [], sources: new Map([['10.244.1.9', address]]) },
  ],
  cluster: cidrs('10.244.0.0/16', '10.96.0.0/16', '192.168.0.1/32', '192.168.0.2/32'),
  holders: new Map(Object.entries(holders)),
});
const outside = (gateways: EgressView) =>
  ask(view({ egress: () => gateways }), 'shop/client-1', '198.51.100.7:8080');

test('a packet that leaves by an egress gateway has its address, and the step names gateway and node', () => {
  const found = outside(egress({ '192.168.0.50': 'node-2' }));
  assert.equal(found.verdict, 'delivered');
  assert.equal(found.clientSeen, '192.168.0.50');
  const step = found.steps.find(({ object }) => object === 'EgressGateway partner');
  assert.equal(step?.text, 'leaves by node node-2 with the source 192.168.0.50');
  assert.match(step?.ruleOrKey ?? '', /table ip fairlead-egress-gateway/);
});

test('while no node has the address, the packet is dropped, and the cause names the gateway', () => {
  const found = outside(egress({}));
  assert.deepEqual([found.verdict, found.clientSeen], ['dropped', null]);
  assert.equal(found.causes[0]?.object, 'EgressGateway partner');
  assert.match(found.causes[0]?.text ?? '', /no node has the address 192\.168\.0\.50/);
  assert.match(found.reason, /no node has the address of its egress gateway/);
});

test('a gateway without an address of the family is named as the cause', () => {
  const found = outside(egress({}, null));
  assert.equal(found.verdict, 'dropped');
  assert.match(found.causes[0]?.text ?? '', /has no IPv4 address/);
});

test('other pods, and packets to pods, are explained as without gateways', () => {
  const scene = view({ egress: () => egress({}) });
  assert.equal(ask(scene, 'shop/web-1', '198.51.100.7:8080').clientSeen, '192.168.0.1');
  const inside = ask(scene, 'shop/client-1', '10.244.2.2:8080');
  assert.deepEqual([inside.verdict, inside.clientSeen], ['delivered', '10.244.1.9']);
});
