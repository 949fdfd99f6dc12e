import assert from 'node:assert/strict';
import { test } from 'node:test';
import { admit, type GuardedRequest } from './request-guard.ts';

const TOKEN = 'secret';
const GOOD: GuardedRequest = {
  method: 'GET',
  url: '/secret/',
  host: '127.0.0.1:8000',
  origin: undefined,
  isUpgrade: false,
};
const OWN_ORIGIN = 'http://127.0.0.1:8000';

const rows: readonly { what: string; request: Partial<GuardedRequest>; status: number; path?: string }[] = [
  { what: 'the page', request: {}, status: 200, path: '/' },
  { what: 'the page without the last slash', request: { url: '/secret' }, status: 200, path: '/' },
  { what: 'a file', request: { url: '/secret/page.js?v=1' }, status: 200, path: '/page.js' },
  { what: 'localhost as the host', request: { host: 'LOCALHOST:8000' }, status: 200, path: '/' },
  {
    what: 'an operation from the page',
    request: { method: 'POST', origin: OWN_ORIGIN },
    status: 200,
  },
  { what: 'no token', request: { url: '/' }, status: 403 },
  { what: 'a file without the token', request: { url: '/page.js' }, status: 403 },
  { what: 'a token that begins right', request: { url: '/secre/' }, status: 403 },
  { what: 'a token that is too long', request: { url: '/secrets/' }, status: 403 },
  { what: 'the token in the query', request: { url: '/?token=secret' }, status: 403 },
  { what: 'the token behind a folder', request: { url: '//secret/' }, status: 403 },
  { what: 'an absolute address', request: { url: 'http://127.0.0.1:8000/secret/' }, status: 403 },
  { what: 'an empty address', request: { url: '' }, status: 403 },
  { what: 'no Host header', request: { host: undefined }, status: 421 },
  { what: 'a name that resolves to loopback', request: { host: 'attacker.example:8000' }, status: 421 },
  { what: 'a tunnel from another port', request: { host: '127.0.0.1:9000' }, status: 200, path: '/' },
  { what: 'a tunnel by name', request: { host: 'localhost:9000' }, status: 200, path: '/' },
  { what: 'a tunnel on port 80', request: { host: 'localhost' }, status: 200, path: '/' },
  { what: 'a tunnel on IPv6', request: { host: '[::1]:9000' }, status: 200, path: '/' },
  { what: 'a tunnel without the token', request: { host: 'localhost:9000', url: '/' }, status: 403 },
  {
    what: 'an operation through a tunnel',
    request: { host: 'localhost:9000', method: 'POST', origin: 'http://localhost:9000' },
    status: 200,
  },
  {
    what: 'a WebSocket through a tunnel',
    request: { host: 'localhost:9000', isUpgrade: true, origin: 'http://localhost:9000' },
    status: 200,
  },
  {
    what: 'a page of another port, to a tunnel',
    request: { host: 'localhost:9000', method: 'POST', origin: 'http://localhost:9001' },
    status: 403,
  },
  {
    what: 'a WebSocket of a page of another port, to a tunnel',
    request: { host: 'localhost:9000', isUpgrade: true, origin: 'http://127.0.0.1:9000' },
    status: 403,
  },
  {
    what: 'a page with TLS, to a tunnel',
    request: { host: 'localhost:9000', origin: 'https://localhost:9000' },
    status: 403,
  },
  ...[
    ...[
      'attacker.example',
      'localhost.attacker.example:9000',
      '127.0.0.1.attacker.example',
      'localhost.:8000',
    ],
    ...['127.0.0.1@attacker.example', 'attacker.example#localhost', 'localhost:8000:9000', 'localhost:', ''],
    ...['localhost:99999', 'localhost:0', '0.0.0.0:8000', '[::]:8000', '127.1:8000', '2130706433:8000'],
    ...[
      '[::ffff:127.0.0.1]:8000',
      '10.0.0.1:8000',
      ' localhost:8000',
      'localhost:8000\n',
      '::1',
      '127.0.0.256',
    ],
  ].map((host) => ({
    what: `the Host header ${JSON.stringify(host)}, with an Origin that fits`,
    request: { host, origin: `http://${host}` },
    status: 421,
  })),
  { what: 'a request of another site', request: { origin: 'https://attacker.example' }, status: 403 },
  { what: 'a request of a page without an origin', request: { origin: 'null' }, status: 403 },
  { what: 'a request of another port', request: { origin: 'http://127.0.0.1:9000' }, status: 403 },
  { what: 'a WebSocket of the page', request: { isUpgrade: true, origin: OWN_ORIGIN }, status: 200 },
  { what: 'a WebSocket without an origin', request: { isUpgrade: true }, status: 403 },
  {
    what: 'a WebSocket of another site',
    request: { isUpgrade: true, origin: 'https://attacker.example' },
    status: 403,
  },
  {
    what: 'a WebSocket without the token',
    request: { isUpgrade: true, origin: OWN_ORIGIN, url: '/api/shell' },
    status: 403,
  },
  { what: 'another method', request: { method: 'OPTIONS' }, status: 405 },
  { what: 'a path with a bad escape', request: { url: '/secret/%' }, status: 200, path: '/%' },
  { what: 'a path upwards', request: { url: '/secret/../../etc/passwd' }, status: 200, path: '/etc/passwd' },
];

for (const { what, request, status, path } of rows) {
  test(`${what}: ${status === 200 ? 'answered' : `refused with ${status}`}`, () => {
    const admission = admit({ ...GOOD, ...request }, TOKEN);
    assert.equal(admission.isAdmitted ? 200 : admission.status, status);
    if (path !== undefined) assert.equal(admission.isAdmitted && admission.path, path);
  });
}
