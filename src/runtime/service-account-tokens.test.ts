import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createClient } from '../kube/client.ts';
import { jsonAnswer } from '../kube/testing/json-answer.ts';
import type { Transport } from '../kube/transport.ts';
import { manualClock } from '../lib/clock.ts';
import { createTokenSource } from './service-account-tokens.ts';

const SECOND = 1000;
const HOUR = 3600 * SECOND;

/** A source of the tokens of one pod, with an API server that numbers them. */
function scene({ grants }: { grants?: number } = {}) {
  const clock = manualClock(Date.parse('2026-01-01T00:00:00Z'));
  const requests: { path: string; spec: { expirationSeconds: number; audiences?: string[] } }[] = [];
  const transport: Transport = async ({ path, body }) => {
    const { spec } = JSON.parse(String(body));
    requests.push({ path, spec });
    const expires = clock.now() + (grants ?? spec.expirationSeconds) * SECOND;
    const status = {
      token: `token ${requests.length}`,
      expirationTimestamp: new Date(expires).toISOString().replace('.000', ''),
    };
    return jsonAnswer(201, { status });
  };
  const pod = {
    metadata: { name: 'a', namespace: 'n', uid: 'u' },
    spec: { containers: [], serviceAccountName: 'robot' },
  };
  const token = createTokenSource({ client: createClient(transport, 'test'), pod: () => pod, clock });
  return { clock, requests, token };
}

test('a token is requested for the pod and its account', async () => {
  const { token, requests } = scene();
  assert.equal(await token('vault', 600), 'token 1');
  assert.deepEqual(requests, [
    {
      path: '/api/v1/namespaces/n/serviceaccounts/robot/token',
      spec: {
        expirationSeconds: 600,
        audiences: ['vault'],
        boundObjectRef: { kind: 'Pod', apiVersion: 'v1', name: 'a', uid: 'u' },
      },
    },
  ]);
});

for (const row of [
  { name: 'four fifths of its life', seconds: 3600, keptMs: 0.8 * HOUR },
  { name: 'four fifths of the life that the server granted', seconds: 600, grants: 3600, keptMs: 0.8 * HOUR },
  { name: 'at most a day', seconds: 30 * 24 * 3600, keptMs: 24 * HOUR },
])
  test(`a token is kept for ${row.name}`, async () => {
    const { token, clock } = scene({ ...(row.grants === undefined ? {} : { grants: row.grants }) });
    assert.equal(await token(undefined, row.seconds), 'token 1');
    clock.advance(row.keptMs - 1);
    assert.equal(await token(undefined, row.seconds), 'token 1');
    clock.advance(1);
    assert.equal(await token(undefined, row.seconds), 'token 2');
  });

test('each audience and duration has its own token', async () => {
  const { token } = scene();
  const all = [
    await token('a', 600),
    await token('b', 600),
    await token('a', 900),
    await token(undefined, 600),
  ];
  assert.equal(new Set(all).size, 4);
  assert.equal(await token('a', 600), all[0]);
});
