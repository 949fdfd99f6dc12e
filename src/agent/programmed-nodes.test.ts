import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { readProgrammed } from './ask-programmed.ts';
import { createProgrammedNodes, MAX_ASKED } from './programmed-nodes.ts';

const ROWS: readonly [what: string, own: string | null, others: (string | null)[], expected: boolean][] = [
  ['all nodes have it', '20', ['20', '21'], true],
  ['a longer number is a later one', '100', ['100'], true],
  ['this node does not have it yet', '9', ['20'], false],
  ['another node does not have it yet', '20', ['20', '9'], false],
  ['a node has never answered, as one with another proxy', '20', [null, '20'], true],
  ['this node has no proxy', null, ['20'], true],
  ['there are no other nodes', '20', [], true],
  ['there are more nodes than are asked', '20', Array(MAX_ASKED + 1).fill('9'), true],
];
for (const [what, own, versions, expected] of ROWS)
  test(`version 20 is ${expected ? '' : 'not '}programmed if ${what}`, async () => {
    const { nodes } = scene(own, versions);
    nodes.have('20');
    await turn();
    assert.equal(nodes.have('20'), expected);
  });

test('a node that has not been asked yet is waited for', async () => {
  const { nodes } = scene('20', ['20']);
  assert.equal(nodes.have('20'), false);
  await turn();
  assert.equal(nodes.have('20'), true);
});

test('a node is asked again after a moment, one question at a time, until it has the version', async () => {
  const { nodes, clock, versions, asked } = scene('20', ['9']);
  for (let i = 0; i < 5; i++) nodes.have('20');
  await turn();
  assert.equal(nodes.have('20'), false);
  assert.deepEqual(asked, ['10.0.0.0']);
  versions[0] = '20';
  clock.advance(100);
  assert.equal(nodes.have('20'), false);
  await turn();
  assert.equal(nodes.have('20'), true);
  assert.equal(asked.length, 2);
});

test('a node that has answered and is silent now is waited for while it is ready', async () => {
  const { nodes, clock, versions, leave } = scene('20', ['9']);
  nodes.have('20');
  await turn();
  versions[0] = null;
  clock.advance(100);
  nodes.have('20');
  await turn();
  assert.equal(nodes.have('20'), false);
  leave();
  assert.equal(nodes.have('20'), true);
});

test('nodes are met by a question for any version', async () => {
  const { nodes, asked } = scene('20', ['9']);
  assert.equal(nodes.have(''), false);
  await turn();
  assert.equal(nodes.have(''), true);
  assert.equal(asked.length, 1);
});

const BODIES: readonly [body: string, version: string | null][] = [
  ['{"endpointSlices":"12"}', '12'],
  ['{"endpointSlices":null}', null],
  ['{"endpointSlices":12}', null],
  ['{"endpointSlices":"-1"}', null],
  [`{"endpointSlices":"${'9'.repeat(1000)}"}`, null],
  ['[]', null],
  ['null', null],
  ['<html>', null],
];
for (const [body, version] of BODIES)
  test(`the answer ${body.slice(0, 40)} has ${version === null ? 'no version' : `version ${version}`}`, () =>
    assert.equal(readProgrammed(body), version));

/** `given`: the versions that the nodes answer with. */
function scene(own: string | null, given: readonly (string | null)[]) {
  const versions = [...given];
  let all = versions.map((_, i) => ({ name: `node-${i}`, address: `10.0.0.${i}` }));
  const asked: string[] = [];
  const clock = manualClock();
  const nodes = createProgrammedNodes({
    own: () => own,
    others: () => all,
    async ask(address) {
      asked.push(address);
      return versions[Number(address.split('.').at(-1))] ?? null;
    },
    clock,
  });
  const leave = () => {
    all = [];
  };
  return { nodes, clock, versions, asked, leave };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
