import assert from 'node:assert/strict';
import { test } from 'node:test';
import { API_VERSION, readConfiguration } from './configuration.ts';
import { otherUplink } from './network-part.ts';

const configured = (network: object) =>
  readConfiguration({
    kind: 'AgentConfiguration',
    apiVersion: API_VERSION,
    nodeName: 'node-1',
    server: 'https://192.0.2.1:6443',
    network,
  }).network?.uplink ?? null;

for (const [name, network, used, expected] of [
  ['none: the device with the node’s address', {}, 'ens3', null],
  ['an empty name, as of the chart', { uplink: '' }, 'ens3', null],
  ['the device with the node’s address', { uplink: 'ens3' }, 'ens3', null],
  [
    'another device is answered',
    { uplink: 'eth0' },
    'ens3',
    /uplink is eth0.*address is on ens3, which is used/,
  ],
] as const)
  test(`the uplink of the configuration: ${name}`, () => {
    const problem = otherUplink(configured(network), used);
    if (expected === null) assert.equal(problem, null);
    else assert.match(problem ?? '', expected);
  });
