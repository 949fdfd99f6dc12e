import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseFieldSelector, parseLabelSelector } from './selectors.ts';

const labels = { app: 'web', tier: 'front', size: '3' };
const rows: readonly [selector: string, matches: boolean][] = [
  ['', true],
  ['app=web', true],
  ['app==web', true],
  ['app=api', false],
  ['app!=api', true],
  ['missing!=x', true],
  ['app', true],
  ['!app', false],
  ['!missing', true],
  ['constructor', false],
  ['app in (web, api)', true],
  ['app notin (web)', false],
  ['missing notin (web)', true],
  ['app=web,tier in (front,back),!gone', true],
  ['app=web,tier=back', false],
  ['size>2', true],
  ['size<3', false],
  ['example.com/app', false],
];
for (const [selector, matches] of rows) {
  test(`labels ${matches ? 'match' : 'do not match'} "${selector}"`, () => {
    assert.equal(parseLabelSelector(selector)(labels), matches);
  });
}

for (const selector of ['a in (b', 'a=b c', '=b', 'a in', '-a', 'size>x']) {
  test(`"${selector}" is no label selector`, () => {
    assert.throws(() => parseLabelSelector(selector), { code: 400 });
  });
}

const fields = { 'metadata.name': 'x', 'status.phase': 'Running', 'spec.nodeName': '' };
const fieldRows: readonly [selector: string, matches: boolean][] = [
  ['metadata.name=x', true],
  ['status.phase!=Failed,status.phase!=Succeeded', true],
  ['status.phase==Running,metadata.name=y', false],
  ['spec.nodeName=', true],
];
for (const [selector, matches] of fieldRows) {
  test(`fields ${matches ? 'match' : 'do not match'} "${selector}"`, () => {
    assert.equal(parseFieldSelector(selector, Object.keys(fields))(fields), matches);
  });
}

test('fields that the kind does not offer are refused by name', () => {
  assert.throws(
    () => parseFieldSelector('spec.foo=1', ['metadata.name']),
    /field label not supported: spec\.foo/,
  );
});
