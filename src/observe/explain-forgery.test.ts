import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { EXTRA_SOURCES } from '../network/extra-sources.ts';
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
  const sources: {
    readonly name: string;
    readonly source: string;
    readonly requested?: string;
    readonly permitted?: string;
    readonly cause: RegExp | null;
  }[] = [
    { name: 'an address of the pod', source: '10.1.0.1', cause: null },
    { name: 'another address', source: '10.1.0.2', cause: /^10\.1\.0\.2 is not an address of pod .*web-1$/ },
    {
      name: 'an address that the namespace permits',
      source: '192.0.2.7',
      requested: '192.0.2.7',
      permitted: '192.0.2.0/24',
      cause: null,
    },
    {
      name: 'an address of a network that the namespace permits',
      source: 'fd00:5::9',
      requested: '192.0.2.7, fd00:5::/80',
      permitted: '192.0.2.0/24,fd00:5::/64',
      cause: null,
    },
    {
      name: 'an address that the pod requests without permission',
      source: '192.0.2.7',
      requested: '192.0.2.7',
      cause:
        /its request of 192\.0\.2\.7 is refused, because the namespace's annotation .* does not contain it/,
    },
    {
      name: 'an address that the namespace permits, and the pod does not request',
      source: '192.0.2.7',
      permitted: '192.0.2.0/24',
      cause: /is not an address of pod .*web-1$/,
    },
  ];
  for (const { name, source, requested, permitted, cause } of sources)
    test(`${name} is ${cause ? '' : 'not '}forged`, () => {
      const { pod: own } = origin;
      const annotations = requested === undefined ? {} : { [EXTRA_SOURCES]: requested };
      const asked = { ...origin, pod: { ...own, metadata: { ...own?.metadata, annotations } } };
      const found = forgedSource(asked, source, () => permitted);
      if (cause) assert.match(found?.text ?? '', cause);
      else assert.equal(found, null);
    });
  test('only pods with a network of their own choose a source', () => {
    assert.throws(
      () => forgedSource({ ...origin, kind: 'outside', pod: null }, '10.1.0.2', () => undefined),
      {
        code: 'bad-argument',
      },
    );
  });
});
