import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missingNames } from './flow-selection.ts';

const KNOWN = { services: ['default/hello', 'lab/api'], pods: ['default/client', 'lab/client'] };
const rows: { name: string; service?: string; pod?: string; says: string[] }[] = [
  { name: 'no names', says: [] },
  { name: 'names that exist', service: 'hello', pod: 'lab/client', says: [] },
  { name: 'a Service as other commands take it', service: 'svc/hello', says: [] },
  { name: 'a pod as other commands take it', pod: 'pod/lab/client', says: [] },
  {
    name: 'typing errors',
    service: 'helo',
    pod: 'clinet',
    says: [
      'no such Service now: default/helo: did you mean default/hello?',
      'no such pod now: default/clinet: did you mean default/client?',
    ],
  },
  { name: 'another name', service: 'lab/shop', says: ['no such Service now: lab/shop'] },
];
for (const { name, service = null, pod = null, says } of rows) {
  test(`flows of ${name}`, () => assert.deepEqual(missingNames({ service, pod }, KNOWN), says));
}
