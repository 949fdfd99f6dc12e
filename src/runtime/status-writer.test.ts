import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { statusWriter } from './status-writer.ts';

const POD: Pod = { metadata: { name: 'a', namespace: 'x', uid: 'u' }, spec: { containers: [] } };
const turn = () => new Promise((resolve) => setImmediate(resolve));

test('a status that is refused is written again after ever longer pauses, the latest one', async () => {
  const clock = manualClock();
  const written: unknown[] = [];
  const at: number[] = [];
  let isRefused = true;
  const start = clock.now();
  const statuses = statusWriter({
    clock,
    logger: silentLogger,
    signal: new AbortController().signal,
    client: {
      patch: async (_resource, _name, _type, body) => {
        at.push((clock.now() - start) / 500);
        if (isRefused) throw new Error('refused');
        written.push((body as Pod).status?.phase);
        return body as never;
      },
    },
  });
  statuses.publish(POD, { phase: 'Pending' });
  await turn();
  for (let i = 0; i < 60; i++) {
    clock.advance(500);
    await turn();
  }
  assert.deepEqual(at, [0, 1, 3, 7, 15, 31, 51]);
  isRefused = false;
  statuses.publish(POD, { phase: 'Running' });
  clock.advance(10_000);
  await statuses.flushed('u');
  assert.deepEqual(written, ['Running']);
});
