import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceCidr } from '../kube/types.ts';
import { serviceNetworks } from './service-networks.ts';

const object = (name: string, ...cidrs: string[]): ServiceCidr => ({ metadata: { name }, spec: { cidrs } });
const rows: readonly [what: string, objects: ServiceCidr[], networks: string[] | null][] = [
  ['without objects the configuration is used', [], null],
  [
    'both families of one object',
    [object('kubernetes', '10.96.0.0/16', 'fd00::/112')],
    ['10.96.0.0/16', 'fd00::/112'],
  ],
  [
    'several objects, each network once',
    [object('a', '10.0.0.0/24'), object('b', '10.1.0.0/24', '10.0.0.0/24')],
    ['10.0.0.0/24', '10.1.0.0/24'],
  ],
  ['an invalid network is left out', [object('a', 'x')], null],
];
for (const [what, objects, networks] of rows) {
  test(what, () => assert.deepEqual(serviceNetworks(objects)?.map(({ text }) => text) ?? null, networks));
}
