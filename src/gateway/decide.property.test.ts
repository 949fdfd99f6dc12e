import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRandom } from '../service/testing/random.ts';
import { attach } from './attach.ts';
import { decide } from './decide.ts';
import { indexRoutes } from './route-index.ts';
import { outcome } from './testing/objects.ts';
import { randomRequest, randomRoutes } from './testing/random-routes.ts';
import { referenceOutcome } from './testing/reference.ts';

const REQUESTS_PER_MAP = 10;

test('the index decides as a scan of all routes by the words of the API', () => {
  const cases = Number(process.env['FAIRLEAD_PROPERTY_CASES'] ?? 20_000);
  const seed = Number(process.env['FAIRLEAD_PROPERTY_SEED'] ?? 1);
  const seen = new Map<string, number>();
  for (let i = 0; i < cases / REQUESTS_PER_MAP; i++) {
    const random = createRandom(seed * 1_000_003 + i);
    const objects = randomRoutes(random);
    const index = indexRoutes(attach(objects).routeMap);
    for (let j = 0; j < REQUESTS_PER_MAP; j++) {
      const request = randomRequest(random);
      const expected = referenceOutcome(objects, request);
      const got = outcome(decide(index, request));
      if (got !== expected)
        assert.fail(
          `case ${i}: ${got} instead of ${expected}\n${JSON.stringify({ request, gateways: objects.gateways, routes: objects.httpRoutes, grants: objects.referenceGrants }, null, 1)}`,
        );
      seen.set(expected, (seen.get(expected) ?? 0) + 1);
    }
  }
  // The generator reaches every kind of answer, and not mostly errors.
  for (const kind of ['404', '421', '500', 'close', 'a', 'b', 'other/a'])
    assert.ok((seen.get(kind) ?? 0) >= cases / 1000, `${kind}: ${seen.get(kind) ?? 0} of ${cases}`);
});

test('the order of objects changes nothing', () => {
  for (let i = 0; i < 200; i++) {
    const objects = randomRoutes(createRandom(i));
    const reversed = {
      ...objects,
      httpRoutes: objects.httpRoutes.toReversed(),
      services: objects.services.toReversed(),
    };
    assert.deepEqual(attach(reversed).routeMap, attach(objects).routeMap);
  }
});
