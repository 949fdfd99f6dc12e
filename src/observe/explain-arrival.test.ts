import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { renderExplanation } from './explain-text.ts';
import type { ListeningSocket } from './facts.ts';
import { ask, knownFactsOf, LISTENING, view } from './testing/explain-scene.ts';

describe('listening sockets at the destination', () => {
  const socket = (address: string, port: number, v6Only = false): ListeningSocket => ({
    address,
    port,
    v6Only,
    isFull: false,
  });
  const listenRows: [
    what: string,
    sockets: ListeningSocket[] | undefined,
    verdict: string,
    ...says: RegExp[],
  ][] = [
    ['on every address', [socket('0.0.0.0', 8080)], 'delivered'],
    ['on every address of both families', [socket('::', 8080)], 'delivered'],
    [
      'on IPv6 alone',
      [socket('::', 8080, true)],
      'rejected',
      /listens on \[::\]:8080 only, not on 10\.244\./,
      /fix let it listen on 0\.0\.0\.0/,
    ],
    ['on loopback', [socket('127.0.0.1', 8080)], 'rejected', /listens on 127\.0\.0\.1:8080 only/],
    [
      'on another port',
      [socket('::', 3000)],
      'rejected',
      /nothing listens on port 8080\/TCP in pod shop\/web-1; it listens on 3000/,
      /at {2}Service shop\/web spec\.ports\[0\]\.targetPort/,
      /fix set spec\.ports\[0\]\.targetPort to 3000/,
    ],
    [
      'with a full queue',
      [{ ...socket('::', 8080), isFull: true }],
      'dropped',
      /its process does not accept the connections that wait/,
    ],
    [
      'with a full queue, and another process',
      [{ ...socket('::', 8080), isFull: true }, socket('0.0.0.0', 8080)],
      'delivered',
    ],
    ['nowhere', [], 'rejected', /nothing listens on port 8080\/TCP in pod shop\/web-1/],
    [
      'where it cannot be checked',
      undefined,
      'unknown',
      /the listening sockets of pod shop\/web-1 are not known/,
    ],
  ];
  for (const [what, sockets, verdict, ...says] of listenRows) {
    test(what, () => {
      const facts = knownFactsOf({}, { sockets: () => sockets });
      const explanation = ask(view({ facts }), 'shop/client-1', 'svc/web:80');
      assert.equal(explanation.verdict, verdict);
      for (const pattern of says) assert.match(renderExplanation(explanation), pattern);
    });
  }

  test('some endpoints accept: partly delivered, unless a proxy tries the next one', () => {
    const facts = knownFactsOf(
      {},
      { sockets: (place) => (place.kind === 'pod' && place.name === 'shop/web-2' ? [] : LISTENING) },
    );
    const one = ask(view({ facts }), 'shop/client-1', 'svc/web:80');
    assert.equal(one.verdict, 'partial');
    assert.deepEqual(
      one.endpoints.map(({ arrival }) => arrival),
      ['answered', 'refused'],
    );
    assert.equal(
      ask(view({ facts, mode: () => 'userspace' }), 'shop/client-1', 'svc/web:80').verdict,
      'delivered',
    );
  });
});
