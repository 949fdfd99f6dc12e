import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoffMs, type CertificateTerms, type Renewal, renewalOf } from './renewal.ts';

const DAY = 86_400_000;
const NODE: CertificateTerms = {
  commonName: 'system:node:n1',
  organizations: ['system:nodes'],
  names: ['10.0.0.1', 'n1'],
};
const year = { from: 0, until: 365 * DAY };

const ROWS: readonly {
  name: string;
  held: Parameters<typeof renewalOf>[0];
  share?: number;
  now: number;
  renewal: Renewal;
}[] = [
  { name: 'none: at once', held: null, now: 5, renewal: { at: 5, reason: 'missing' } },
  {
    name: 'a fresh one: at 70 % of its life at the earliest',
    held: { ...NODE, ...year },
    now: DAY,
    renewal: { at: 0.7 * 365 * DAY, reason: 'age' },
  },
  {
    name: 'and at 90 % at the latest',
    held: { ...NODE, ...year },
    share: 1,
    now: DAY,
    renewal: { at: 0.9 * 365 * DAY, reason: 'age' },
  },
  {
    name: 'the life begins when the certificate is valid from, not when it is issued',
    held: { ...NODE, from: 100, until: 1100 },
    share: 0.5,
    now: 400,
    renewal: { at: 900, reason: 'age' },
  },
  {
    name: 'a time that has passed while no agent ran stays in the past: at once',
    held: { ...NODE, ...year },
    now: 360 * DAY,
    renewal: { at: 0.7 * 365 * DAY, reason: 'age' },
  },
  {
    name: 'expired: at once',
    held: { ...NODE, from: 0, until: 10 },
    now: 10,
    renewal: { at: 10, reason: 'expired' },
  },
  {
    name: 'of another node: at once',
    held: { ...NODE, ...year, commonName: 'system:node:n2' },
    now: 1,
    renewal: { at: 1, reason: 'subject' },
  },
  {
    name: 'of another group: at once',
    held: { ...NODE, ...year, organizations: [] },
    now: 1,
    renewal: { at: 1, reason: 'subject' },
  },
  {
    name: 'an address was added: at once',
    held: { ...NODE, ...year, names: ['n1'] },
    now: 1,
    renewal: { at: 1, reason: 'names' },
  },
  {
    name: 'an address was removed: at once',
    held: { ...NODE, ...year, names: ['10.0.0.1', '10.0.0.2', 'n1'] },
    now: 1,
    renewal: { at: 1, reason: 'names' },
  },
];

for (const { name, held, share = 0, now, renewal } of ROWS) {
  test(`renewal: ${name}`, () => {
    const found = renewalOf(held, NODE, share, now);
    assert.deepEqual({ ...found, at: Math.round(found.at) }, { ...renewal, at: Math.round(renewal.at) });
  });
}

for (const { failures, share, ms } of [
  { failures: 1, share: 0, ms: 2000 },
  { failures: 2, share: 0, ms: 4000 },
  { failures: 1, share: 1, ms: 2200 },
  { failures: 30, share: 0, ms: 900_000 },
  { failures: 5000, share: 0, ms: 900_000 },
]) {
  test(`after ${failures} failures the next request waits ${ms} ms`, () => {
    assert.equal(Math.round(backoffMs(failures, share)), ms);
  });
}
