import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { forgedSource, splitSource } from './explain-forgery.ts';
import type { Origin } from './explain-view.ts';
import { pod } from './testing/explain-scene.ts';

describe('a packet with a chosen source', () => {
  const rows: [text: string, from: string, source: string | null][] = [
    ['pod/web-1', 'pod/web-1', null],
    ['pod/web-1@10.1.0.9', 'pod/web-1', '10.1.0.9'],
    ['pod/web-1@[fd00::9]', 'pod/web-1', 'fd00::9'],
    ['http://user@web/', 'http://user@web/', null],
  ];
  for (const [text, from, source] of rows) {
    test(text, () => assert.deepEqual(splitSource(text), { from, source }));
  }

  const origin: Origin = {
    kind: 'pod',
    label: 'pod shop/web-1',
    addresses: ['10.1.0.1'],
    node: 'node-1',
    pod: pod('web-1', '10.1.0.1', 'node-1'),
    place: null,
  };
  test('an address of the pod is not forged', () => {
    assert.equal(forgedSource(origin, '10.1.0.1'), null);
  });
  test('another address is, and the cause names the pod', () => {
    assert.match(
      forgedSource(origin, '10.1.0.2')?.text ?? '',
      /^10\.1\.0\.2 is not an address of pod .*web-1$/,
    );
  });
  test('only pods with a network of their own choose a source', () => {
    assert.throws(() => forgedSource({ ...origin, kind: 'outside', pod: null }, '10.1.0.2'), {
      code: 'bad-argument',
    });
  });
});
