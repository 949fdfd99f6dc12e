import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldMatcher } from './field-selectors.ts';
import { KINDS } from './kinds.ts';
import type { ApiObject } from './object.ts';
import { parseLabelSelector } from './selectors.ts';

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

const refusals: readonly [selector: string, message: RegExp][] = [
  ['a in (b', /^unable to parse requirement: found '', expected: ',' or '\)'$/],
  ['a=b c', /^found 'c', expected: ',' or 'end of string'$/],
  ['a=b=c', /^found '=', expected: ',' or 'end of string'$/],
  ['=b', /^unable to parse requirement: found '=', expected: !, identifier, or 'end of string'$/],
  ['a in', /^unable to parse requirement: found '', expected: '\('$/],
  ['a b', /^unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt$/],
  ['-a', /Invalid value: "-a": name part must consist of/],
  ['size>x', /for 'Gt', 'Lt' operators, the value must be an integer$/],
  ['a=b_', /^unable to parse requirement: values\[0\]\[a\]: Invalid value: "b_": a valid label must be/],
  ['a,', /^found '', expected: identifier after ','$/],
];
for (const [selector, message] of refusals) {
  test(`the label selector "${selector}" is refused`, () => {
    assert.throws(() => parseLabelSelector(selector), { code: 400, message });
  });
}

const kindOf = (plural: string, group = '') => {
  const kind = KINDS.find((one) => one.plural === plural && one.group === group);
  assert.ok(kind);
  return kind;
};
const object = (fields: object): ApiObject => ({
  apiVersion: 'v1',
  kind: 'Any',
  metadata: { name: 'x', namespace: 'ns' },
  ...fields,
});
const fieldRows: readonly [plural: string, fields: object, selector: string, matches: boolean][] = [
  ['configmaps', {}, 'metadata.name=x', true],
  ['configmaps', {}, 'metadata.name!=x', false],
  ['configmaps', {}, 'metadata.namespace==ns', true],
  ['nodes', {}, 'spec.unschedulable=false', true],
  ['nodes', { spec: { unschedulable: true } }, 'spec.unschedulable=false', false],
  ['pods', { spec: { nodeName: 'n' } }, 'spec.nodeName=n', true],
  ['pods', { spec: { nodeName: 'n' } }, 'spec.host=n', true],
  ['pods', {}, 'spec.nodeName=', true],
  ['pods', {}, 'spec.hostNetwork=false', true],
  ['pods', { status: { podIPs: [{ ip: '10.0.0.1' }] } }, 'status.podIP=10.0.0.1', true],
  ['pods', { status: { phase: 'Running' } }, 'status.phase!=Failed,status.phase!=Succeeded', true],
  ['replicationcontrollers', {}, 'status.replicas=0', true],
  ['secrets', { type: 'a=b' }, 'type=a\\=b', true],
  ['services', { spec: { clusterIP: 'None' } }, 'spec.clusterIP=None', true],
];
for (const [plural, fields, selector, matches] of fieldRows) {
  test(`fields of ${plural} ${matches ? 'match' : 'do not match'} "${selector}"`, () => {
    assert.equal(fieldMatcher(kindOf(plural), selector)(object(fields)), matches);
  });
}

test('a Job’s successful pods are counted from zero', () => {
  const job = kindOf('jobs', 'batch');
  assert.equal(fieldMatcher(job, 'status.successful=0')(object({})), true);
  assert.equal(fieldMatcher(job, 'status.successful=2')(object({ status: { succeeded: 2 } })), true);
});

const fieldRefusals: readonly [plural: string, group: string, selector: string, message: string][] = [
  [
    'configmaps',
    '',
    'data=1',
    '"data" is not a known field selector: only "metadata.name", "metadata.namespace"',
  ],
  ['pods', '', 'spec.foo=1', 'field label not supported: spec.foo'],
  ['nodes', '', 'metadata.namespace=x', 'field label not supported: metadata.namespace'],
  ['jobs', 'batch', 'spec.foo=1', 'field label "spec.foo" not supported for Job'],
  ['pods', '', 'a', "invalid selector: 'a'; can't understand 'a'"],
  ['pods', '', 'type=a=b', 'invalid field selector: unescaped character in value: 61'],
];
for (const [plural, group, selector, message] of fieldRefusals) {
  test(`the field selector "${selector}" of ${plural} is refused`, () => {
    assert.throws(() => fieldMatcher(kindOf(plural, group), selector), { code: 400, message });
  });
}
