import assert from 'node:assert/strict';
import { test } from 'node:test';
import { network, testNode } from '../../service/testing/test-node.ts';
import { nodePortMatches } from './base-chains.ts';

const rows: readonly [
  what: string,
  localhost: boolean,
  cidrs: readonly string[] | 'all',
  expected: string[],
][] = [
  ['all addresses, including loopback', true, 'all', ['']],
  ['all addresses but loopback', false, 'all', ['! 127.0.0.0/8']],
  [
    'a network, and loopback through localhostNodePorts',
    true,
    ['192.0.2.0/24'],
    ['192.0.2.0/24', '127.0.0.0/8'],
  ],
  [
    'a loopback network in the list, with localhostNodePorts off',
    false,
    ['127.0.0.0/8', '192.0.2.0/24'],
    ['192.0.2.0/24'],
  ],
  ['part of loopback in the list, with localhostNodePorts off', false, ['127.0.0.1/32'], []],
  ['all addresses through 0.0.0.0/0, with localhostNodePorts off', false, ['0.0.0.0/0'], ['! 127.0.0.0/8']],
  [
    'a network that contains loopback, with localhostNodePorts off',
    false,
    ['124.0.0.0/6'],
    ['124.0.0.0/7', '126.0.0.0/8'],
  ],
];
for (const [what, localhostNodePorts, cidrs, expected] of rows)
  test(`node ports answer on ${what}`, () => {
    const ipv4 =
      cidrs === 'all' ? ({ all: true } as const) : ({ all: false, cidrs: cidrs.map(network) } as const);
    const node = testNode({ localhostNodePorts, nodePortAddresses: { ipv4, ipv6: { all: true } } });
    assert.deepEqual(
      nodePortMatches(node, 'ipv4').map(({ destination = '' }) => destination),
      expected,
    );
  });
