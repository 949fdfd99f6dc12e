import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { nextSample, SAMPLING_MS } from './sampling.ts';

describe('the share of packets or events that is read', () => {
  const rows: readonly { name: string; sample: number; count: number; elapsed?: number; next: number }[] = [
    { name: 'a quiet node: all', sample: 1, count: 100, next: 1 },
    { name: 'at the limit: all', sample: 1, count: 4000, next: 1 },
    { name: 'just above the limit: every second', sample: 1, count: 4001, next: 2 },
    { name: 'ten times the limit: at once 1 in 16', sample: 1, count: 40_000, next: 16 },
    { name: 'the sample itself too large: less', sample: 16, count: 10_000, next: 64 },
    { name: 'a flood: never less than 1 in 1024', sample: 1024, count: 1_000_000, next: 1024 },
    { name: 'the sample fits: stays', sample: 16, count: 2500, next: 16 },
    { name: 'the flood ends: more, step by step', sample: 16, count: 500, next: 8 },
    {
      name: 'a pause of the process: what waited is not a flood',
      sample: 1,
      count: 8000,
      elapsed: 1000,
      next: 1,
    },
    { name: 'a flood in a pause', sample: 1, count: 16_000, elapsed: 1000, next: 2 },
    { name: 'a timer that is early', sample: 1, count: 4000, elapsed: 499, next: 1 },
  ];
  for (const { name, sample, count, elapsed = SAMPLING_MS, next } of rows)
    test(name, () => assert.equal(nextSample(sample, count, elapsed), next));
});
