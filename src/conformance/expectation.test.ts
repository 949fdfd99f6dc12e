import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SourceClass } from '../service/model.ts';
import { type DestinationKind, expect } from './expectation.ts';
import { SCENARIOS } from './scenarios.ts';

const SERVERS = [
  { name: 'a1', node: 'n1', addresses: {} },
  { name: 'a2', node: 'n1', addresses: {} },
  { name: 'b1', node: 'n2', addresses: {} },
];
const USUAL = { masqueradeAll: false, localDetection: true };

type Case = readonly [scenario: string, kind: DestinationKind, source: SourceClass, node: string];
/** The outcome: the servers and whom they see, or the action. */
type Row = readonly [what: string, flow: Case, outcome: string, configuration?: Partial<typeof USUAL>];

const ROWS: readonly Row[] = [
  ['a pod keeps its address on a cluster IP', ['plain', 'clusterIP', 'pod', 'n1'], 'a1 a2 b1, client'],
  ['a client outside is masqueraded', ['plain', 'clusterIP', 'external', 'n1'], 'a1 a2 b1, node'],
  ['every client of a node port is masqueraded', ['plain', 'nodePort', 'pod', 'n1'], 'a1 a2 b1, node'],
  [
    'without detection of pods, cluster IPs masquerade none',
    ['plain', 'clusterIP', 'external', 'n1'],
    'a1 a2 b1, client',
    { localDetection: false },
  ],
  [
    'masqueradeAll masquerades pods too',
    ['plain', 'clusterIP', 'pod', 'n1'],
    'a1 a2 b1, node',
    { masqueradeAll: true },
  ],
  [
    'masqueradeAll is about cluster IPs only',
    ['external-local', 'nodePort', 'external', 'n1'],
    'a1 a2, client',
    { masqueradeAll: true },
  ],
  ['external policy Local, outside', ['external-local', 'loadBalancer', 'external', 'n2'], 'b1, client'],
  ['external policy Local, a pod', ['external-local', 'loadBalancer', 'pod', 'n2'], 'a1 a2 b1, client'],
  ['external policy Local, another node', ['external-local', 'externalIP', 'external', 'n3'], 'drop'],
  ['internal policy Local', ['internal-local', 'clusterIP', 'pod', 'n1'], 'a1 a2, client'],
  ['internal policy Local, another node', ['internal-local', 'clusterIP', 'pod', 'n3'], 'drop'],
  [
    'internal policy Local does not concern node ports',
    ['internal-local', 'nodePort', 'pod', 'n3'],
    'a1 a2 b1, node',
  ],
  ['no ready endpoint', ['not-ready', 'clusterIP', 'pod', 'n1'], 'reject'],
  ['no endpoint at all, policy Local', ['empty', 'nodePort', 'external', 'n1'], 'reject'],
  [
    'a ready endpoint is preferred to a terminating one',
    ['one-ready', 'clusterIP', 'pod', 'n2'],
    'a1, client',
  ],
  [
    'terminating endpoints serve if none is ready',
    ['terminating', 'clusterIP', 'pod', 'n1'],
    'a2 b1, client',
  ],
  ['local terminating endpoints serve', ['local-terminating', 'nodePort', 'external', 'n1'], 'a1 a2, client'],
  ['hints select the endpoints of the node', ['node-hints', 'clusterIP', 'pod', 'n2'], 'b1, client'],
  ['hints for other nodes are ignored', ['node-hints', 'clusterIP', 'pod', 'n3'], 'a1 a2 b1, client'],
];

for (const [what, [name, kind, source, node], outcome, configuration] of ROWS) {
  test(`${what}: ${outcome}`, () => {
    const scenario = SCENARIOS.find((one) => one.name === name);
    assert.ok(scenario);
    const found = expect(scenario, kind, source, node, SERVERS, { ...USUAL, ...configuration });
    const text = found.action === 'forward' ? `${found.servers.join(' ')}, ${found.source}` : found.action;
    assert.equal(text, outcome);
  });
}
