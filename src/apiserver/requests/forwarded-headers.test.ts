import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forwardedHeaders, upgradeHeaders } from './forwarded-headers.ts';

const ROWS: readonly [what: string, header: string, isPassed: boolean][] = [
  ['the Accept header', 'accept', true],
  ['the length of a body', 'content-length', true],
  ['the protocol of a stream', 'sec-websocket-protocol', true],
  ['a trace', 'traceparent', true],
  ['a header of the application', 'x-remotely', true],
  ['credentials', 'authorization', false],
  ['credentials for a proxy', 'proxy-authorization', false],
  ['the impersonated user', 'impersonate-user', false],
  ['impersonated groups', 'impersonate-group', false],
  ['impersonated extra fields', 'impersonate-extra-scopes', false],
  ['a front proxy’s user', 'x-remote-user', false],
  ['a front proxy’s groups', 'x-remote-group', false],
  ['a front proxy’s UID', 'x-remote-uid', false],
  ['a front proxy’s extra fields', 'x-remote-extra-scopes', false],
  ['the name of this server', 'host', false],
  ['a pseudo-header of HTTP/2', ':authority', false],
  ['the framing of the connection', 'transfer-encoding', false],
];
for (const [what, header, isPassed] of ROWS) {
  test(`${what} (${header}) is ${isPassed ? '' : 'not '}forwarded`, () => {
    assert.equal(header in forwardedHeaders({ [header]: 'x' }), isPassed);
    assert.equal(header in upgradeHeaders({ [header]: 'x' }), isPassed);
  });
}

test('a protocol upgrade is forwarded if requested', () => {
  const asked = { connection: 'Upgrade', upgrade: 'websocket' };
  assert.deepEqual(upgradeHeaders(asked), asked);
  assert.deepEqual(forwardedHeaders(asked), {});
});
