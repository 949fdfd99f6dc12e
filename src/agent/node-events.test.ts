import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Handlers } from '../kube/followed-objects.ts';
import type { Node } from '../kube/types.ts';
import { reportNodeLosses } from './node-events.ts';

function node(labels: Record<string, string>, addresses: string[] = ['10.0.0.1'], name = 'n'): Node {
  return {
    metadata: { name, uid: 'u', labels },
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  };
}

const LINUX = node({ 'kubernetes.io/os': 'linux', zone: 'a' });
const BARE = node({ zone: 'a' });
const WITHOUT_ADDRESS = node({ 'kubernetes.io/os': 'linux' }, []);

/** The states of a Node; null: it is deleted. */
const CASES: { name: string; states: (Node | null)[]; address?: string; reasons: string[] }[] = [
  { name: 'other labels change', states: [LINUX, node({ 'kubernetes.io/os': 'linux' })], reasons: [] },
  { name: 'the label is removed', states: [LINUX, BARE], reasons: ['NodeLabelLost'] },
  {
    name: 'the label has another value',
    states: [LINUX, node({ 'kubernetes.io/os': 'windows' })],
    reasons: ['NodeLabelLost'],
  },
  {
    name: 'once, with later updates',
    states: [LINUX, BARE, { ...BARE }, { ...BARE }],
    reasons: ['NodeLabelLost'],
  },
  { name: 'a second time', states: [LINUX, BARE, LINUX, BARE], reasons: ['NodeLabelLost', 'NodeLabelLost'] },
  { name: 'it never had the label', states: [BARE, { ...BARE }], reasons: [] },
  { name: 'the Node is deleted', states: [LINUX, null], reasons: ['NodeDeleted'] },
  {
    name: 'the Node is deleted, and registered without the label',
    states: [LINUX, null, BARE],
    reasons: ['NodeDeleted'],
  },
  { name: 'its address is removed', states: [LINUX, WITHOUT_ADDRESS], reasons: ['NodeAddressLost'] },
  { name: 'the address is configured', address: '10.9.9.9', states: [LINUX, WITHOUT_ADDRESS], reasons: [] },
  {
    name: 'another Node',
    states: [node({ 'kubernetes.io/os': 'linux' }, ['10.0.0.2'], 'm'), node({}, [], 'm'), null],
    reasons: [],
  },
];

for (const { name, states, address = null, reasons } of CASES) {
  test(`events of a Node that loses what the agent needs: ${name}`, () => {
    const said: string[] = [];
    const handlers: Handlers<Node>[] = [];
    const stop = reportNodeLosses({
      nodes: {
        handle(one) {
          handlers.push(one);
          return () => void handlers.splice(0);
        },
      },
      name: 'n',
      address,
      event({ metadata }, type, reason, message) {
        assert.deepEqual([metadata?.uid, type], ['u', 'Warning']);
        assert.ok(message.length <= 1024);
        said.push(reason);
      },
    });
    let before: Node | null = null;
    for (const state of states) {
      for (const { onAdd, onUpdate, onDelete } of handlers) {
        if (state === null) onDelete?.(before ?? {});
        else if (before) onUpdate?.(state, before);
        else onAdd?.(state);
      }
      before = state;
    }
    stop();
    assert.deepEqual(said, reasons);
    assert.equal(handlers.length, 0);
  });
}
