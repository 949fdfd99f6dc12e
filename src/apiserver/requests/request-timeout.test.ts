import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { CORE, startApi } from '../testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;

describe('the timeout of a request', () => {
  const rows: readonly [query: string, status: number, message?: string][] = [
    ['timeout=10s', 200],
    ['timeout=0s', 200],
    ['timeout=', 200],
    ['timeout=x', 400, 'invalid timeout specified in the request URL - time: invalid duration "x"'],
    ['timeout=10', 400, 'invalid timeout specified in the request URL - time: missing unit in duration "10"'],
  ];
  for (const [query, status, message] of rows) {
    test(`${query} is answered with ${status}`, async () => {
      const answer = await request('GET', `${CORE}/configmaps?${query}`);
      assert.equal(answer.status, status);
      assert.equal(answer.body.message, message);
    });
  }
  test('ends a request that waits longer', async () => {
    const later = `${CORE}/configmaps?resourceVersion=999999&resourceVersionMatch=NotOlderThan&timeout=1ms`;
    const { status, body } = await request('GET', later);
    assert.deepEqual([status, body.reason], [504, 'Timeout']);
  });
});
