import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type EntryQuestion, readEntryQuestion } from './bpf-entry-text.ts';

const ROWS: readonly (readonly [object: string, question: EntryQuestion | null])[] = [
  [
    'bpf: program connect4, map fl_frontends, key 10.96.0.1 port 443 protocol TCP',
    { map: 'frontends', ip: '10.96.0.1', port: 443, protocol: 'TCP' },
  ],
  [
    'bpf: program connect/sendmsg6, map fl_frontends, key fd00:96::a port 53 protocol UDP',
    { map: 'frontends', ip: 'fd00:96::a', port: 53, protocol: 'UDP' },
  ],
  ['bpf: map fl_endpoints, slots 8 to 10', { map: 'endpoints', first: 8, last: 10 }],
  ['bpf: map fl_affinities, frontend 3', { map: 'affinities', frontend: 3 }],
  ['bpf: map fl_frontends, key 10.96.0.300 port 443 protocol TCP', null],
  ['bpf: map fl_endpoints, slots 8', null],
  ['bpf: map other, slots 8 to 10', null],
  ['nft: table ip fairlead, map services', null],
];
for (const [object, question] of ROWS) {
  test(`${object}: ${question?.map ?? 'no map entry'}`, () =>
    assert.deepEqual(readEntryQuestion(object), question));
}
