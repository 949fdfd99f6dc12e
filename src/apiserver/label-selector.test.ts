import assert from 'node:assert/strict';
import { test } from 'node:test';
import { selectorMatches } from './label-selector.ts';

const LABELS = { app: 'web', tier: '' };
const one = (key: string, operator: string, values?: readonly string[]) => ({
  matchExpressions: [{ key, operator, ...(values ? { values } : {}) }],
});

const ROWS: readonly (readonly [name: string, selector: object, matches: boolean])[] = [
  ['the empty selector matches everything', {}, true],
  ['equal labels match', { matchLabels: { app: 'web' } }, true],
  ['another value does not match', { matchLabels: { app: 'db' } }, false],
  ['all labels have to match', { matchLabels: { app: 'web', zone: 'a' } }, false],
  ['In: one of the values', one('app', 'In', ['db', 'web']), true],
  ['In: none of the values', one('app', 'In', ['db']), false],
  ['In: a label that is absent is not the empty value', one('zone', 'In', ['']), false],
  ['In: an empty value', one('tier', 'In', ['']), true],
  ['NotIn: none of the values', one('app', 'NotIn', ['db']), true],
  ['NotIn: one of the values', one('app', 'NotIn', ['db', 'web']), false],
  ['NotIn: a label that is absent matches', one('zone', 'NotIn', ['a']), true],
  ['Exists: also with an empty value', one('tier', 'Exists'), true],
  ['Exists: absent', one('zone', 'Exists'), false],
  ['DoesNotExist: absent', one('zone', 'DoesNotExist'), true],
  ['DoesNotExist: present', one('app', 'DoesNotExist'), false],
  ['Exists: a name that every object inherits is absent', one('constructor', 'Exists'), false],
  ['an unknown operator matches nothing', one('app', 'Gt', ['1']), false],
  [
    'labels and expressions have to match',
    { matchLabels: { app: 'web' }, ...one('tier', 'DoesNotExist') },
    false,
  ],
];

for (const [name, selector, matches] of ROWS) {
  test(name, () => assert.equal(selectorMatches({ ...selector }, LABELS), matches));
}
