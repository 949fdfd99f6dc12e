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
  { what: 'another port in the Host header', request: { host: '127.0.0.1:9000' }, status: 421 },
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
    const admission = admit({ ...GOOD, ...request }, TOKEN, 8000);
    assert.equal(admission.isAdmitted ? 200 : admission.status, status);
    if (path !== undefined) assert.equal(admission.isAdmitted && admission.path, path);
  });
}
