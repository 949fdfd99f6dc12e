import assert from 'node:assert/strict';
import { test } from 'node:test';
import { droppedTexts, FORGED, HELD, LIMITED } from './forger-watch.ts';

const rows: [name: string, before: number, now: number, texts: string[]][] = [
  ['nothing is said without packets', 3, 3, []],
  ['one packet', 0, 1, ['dropped a packet of pod x/y: the source is not an address of the pod']],
  ['several packets', 2, 5, ['dropped 3 packets of pod x/y: the source is not an address of the pod']],
  ['a rewritten table', 9, 2, ['dropped 2 packets of pod x/y: the source is not an address of the pod']],
];
for (const [name, before, now, texts] of rows) {
  test(`forged packets: ${name}`, () => {
    assert.deepEqual(droppedTexts(new Map([['x/y', before]]), new Map([['x/y', now]]), FORGED), texts);
  });
}

test('dropped packets of a pod with too many connections: the setting is named', () => {
  const [text = ''] = droppedTexts(new Map(), new Map([['x/y', 2]]), HELD);
  assert.match(text, /^dropped 2 packets of pod x\/y: .*maxConnectionsPerPod/);
});

test('dropped DNS queries: the client is named by its address', () => {
  const counts = new Map([['10.244.1.9', 20]]);
  assert.deepEqual(droppedTexts(new Map(), counts, LIMITED, ''), [
    'dropped 20 packets of 10.244.1.9: it sends more DNS queries than the limit of one client',
  ]);
});
