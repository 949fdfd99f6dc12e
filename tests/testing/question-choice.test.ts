import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CORNERS } from './corner-questions.ts';
import { chooseRows, isDecidedByMode } from './question-choice.ts';
import { QUESTIONS, row, VARIATIONS } from './questions.ts';

const ALL = [...QUESTIONS, ...VARIATIONS, ...CORNERS];

for (const [to, decided] of [
  ['svc/web', true],
  ['web', true],
  ['LB(web-lb):80', true],
  ['NODE1:30081', true],
  ['NODE2:30009/udp', true],
  ['NODE1:18080', true],
  ['127.0.0.1:18081', true],
  ['[::1]:30081', true],
  ['10.96.50.250:80', true],
  ['NODE2:8085', false],
  ['pod/web-1:8080', false],
  ['127.0.0.1:8080', false],
  ['outside:7777', false],
] as const) {
  test(`${to} is ${decided ? '' : 'not '}decided by the mode`, () => {
    assert.equal(isDecidedByMode(row('', 'client', to, 'answer')), decided);
  });
}

test('a name that does not resolve is not decided by the mode, an outcome that differs by mode is', () => {
  assert.equal(isDecidedByMode(row('', 'client', 'nothing', 'unresolved')), false);
  assert.equal(
    isDecidedByMode(row('', 'client', 'pod/web-1:81', 'refused', { in: { ebpf: 'silence' } })),
    true,
  );
});

test('most questions are decided by the mode', () => {
  const count = ALL.filter(isDecidedByMode).length;
  assert.ok(count >= 200 && count < ALL.length, `${count} of ${ALL.length}`);
});

test('modes that share the rows take turns in a quarter of them, and all have those that differ in tunnels', () => {
  const parts = [0, 1, 2].map((index) => chooseRows(ALL, 'shared', index, 3, false));
  const tunnelled = ALL.filter((one) => one.tunnelled !== undefined);
  assert.ok(tunnelled.length > 0);
  const shared = parts.map((rows) => rows.filter((one) => one.tunnelled === undefined));
  for (const rows of parts) assert.ok(tunnelled.every((one) => rows.includes(one)));
  assert.equal(new Set(shared.flat()).size, shared.flat().length, 'no other row is asked twice');
  const others = ALL.length - tunnelled.length;
  const count = shared.flat().length;
  assert.ok(count >= others / 4 - 3 && count <= others / 4 + 3, `${count} of ${others}`);
});

test('the first mode has all rows', () => {
  assert.deepEqual(chooseRows(ALL, 'first has all', 0, 2, false), ALL);
});

for (const [choice, index, oneOf] of [
  ['first has all', 1, 3],
  ['first has all', 2, 3],
  ['sampled', 0, 6],
] as const) {
  test(`${choice}, mode ${index}: rows whose outcome differs in a mode, and one of ${oneOf} others that it decides`, () => {
    const sample = chooseRows(ALL, choice, index, 3, false);
    const decided = ALL.filter(isDecidedByMode);
    const differing = decided.filter((one) => one.in !== undefined);
    assert.ok(differing.length > 0);
    assert.ok(differing.every((one) => sample.includes(one)));
    assert.ok(sample.every((one) => decided.includes(one)));
    const others = decided.length - differing.length;
    const count = sample.length - differing.length;
    assert.ok(count >= others / (oneOf + 1) && count <= others / (oneOf - 1), `${count} of ${others}`);
  });
}

test('other modes than the first take turns', () => {
  const [one, other] = [1, 2].map((index) => chooseRows(ALL, 'first has all', index, 3, false));
  const common = one?.filter((row) => row.in === undefined && other?.includes(row));
  assert.deepEqual(common, []);
});

test('every mode has every row of the full product', () => {
  for (const choice of ['first has all', 'sampled', 'shared'] as const)
    assert.deepEqual(chooseRows(ALL, choice, 1, 3, true), ALL);
});
