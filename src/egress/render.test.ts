import { join } from 'node:path';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { printTable } from '../nft/print.ts';
import { type GatewayRules, renderGateways, renderHeld } from './render.ts';

/** `node --test --test-update-snapshots FILE` updates the files. */
const file = (name: string) => join(import.meta.dirname, 'golden', `${name}.nft`);
const cidrs = (...texts: string[]) => texts.flatMap((text) => parseCidr(text) ?? []);

const rules: GatewayRules = {
  gateways: [
    {
      name: 'partner',
      destinations: cidrs('203.0.113.0/24'),
      except: cidrs('203.0.113.7/32'),
      sources: new Map([
        ['10.244.1.2', '172.30.0.50'],
        ['fd00:244:1::2', null],
      ]),
    },
    {
      name: 'rest',
      destinations: null,
      except: [],
      sources: new Map([
        ['10.244.1.2', '172.30.0.51'],
        ['10.244.2.9', '172.30.0.50'],
      ]),
    },
  ],
  cluster: cidrs('10.244.0.0/16', '10.96.0.0/16', '172.30.0.11/32', 'fd00:244::/48'),
  podNetworks: cidrs('10.244.1.0/24', '10.244.2.0/24', 'fd00:244:1::/64'),
  numbers: new Map([
    ['172.30.0.50', 1],
    ['172.30.0.51', 2],
  ]),
  bridge: 'fl0',
  tunnel: null,
  nextHops: ['172.30.0.12', '172.30.0.13', 'fd00:172:30::12'],
};

for (const [name, family, changed] of [
  ['routes-ipv4', 'ipv4', {}],
  ['routes-ipv6', 'ipv6', {}],
  ['vxlan-ipv4', 'ipv4', { tunnel: 'fl.vxlan' }],
] as const) {
  test(`egress gateways equal golden/${name}.nft`, (t) => {
    const spec = renderGateways(family, { ...rules, ...changed });
    t.assert.fileSnapshot(spec && printTable(spec), file(name), { serializers: [String] });
  });
}

test('the addresses of this node equal golden/held.nft', (t) => {
  t.assert.fileSnapshot(printTable(renderHeld('ipv4', 'fl0')), file('held'), { serializers: [String] });
});

test('without a gateway there is no table', (t) => {
  t.assert.equal(renderGateways('ipv4', { ...rules, gateways: [] }), null);
});
