import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forwardedHeaders, upgradeHeaders } from './forwarded-headers.ts';

const ROWS: readonly [what: string, header: string, isPassed: boolean][] = [
  ['what the client accepts', 'accept', true],
  ['the length of a body', 'content-length', true],
  ['the protocol of a stream', 'sec-websocket-protocol', true],
  ['a trace', 'traceparent', true],
  ['a header of the application', 'x-remotely', true],
  ['credentials', 'authorization', false],
  ['credentials for a proxy', 'proxy-authorization', false],
  ['whom to act as', 'impersonate-user', false],
  ['groups to act with', 'impersonate-group', false],
  ['further claims to act with', 'impersonate-extra-scopes', false],
  ['a front proxy’s user', 'x-remote-user', false],
  ['a front proxy’s groups', 'x-remote-group', false],
  ['a front proxy’s UID', 'x-remote-uid', false],
  ['a front proxy’s further claims', 'x-remote-extra-scopes', false],
  ['the name of this server', 'host', false],
  ['a pseudo-header of HTTP/2', ':authority', false],
  ['the framing of the connection', 'transfer-encoding', false],
];
for (const [what, header, isPassed] of ROWS) {
  test(`${what} (${header}) is ${isPassed ? '' : 'not '}passed on`, () => {
    assert.equal(header in forwardedHeaders({ [header]: 'x' }), isPassed);
    assert.equal(header in upgradeHeaders({ [header]: 'x' }), isPassed);
  });
}

test('a protocol upgrade is forwarded if requested', () => {
  const asked = { connection: 'Upgrade', upgrade: 'websocket' };
  assert.deepEqual(upgradeHeaders(asked), asked);
  assert.deepEqual(forwardedHeaders(asked), {});
});
