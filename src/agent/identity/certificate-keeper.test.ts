import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createCertificateRequest, parseCertificateRequest } from '../../lib/certificate-request.ts';
import { manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createAuthority } from '../../lib/pki.ts';
import { keepCertificate } from './certificate-keeper.ts';
import { certificateStore } from './certificate-store.ts';
import type { CertificateTerms } from './renewal.ts';

const START = Date.parse('2030-01-01T00:00:00Z');
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const folder = mkdtempSync(join(tmpdir(), 'flt-keeper-'));
after(() => rmSync(folder, { recursive: true, force: true }));
let count = 0;

/** A keeper whose signer issues certificates of `seconds`; each answer is one microtask. */
function scene({ seconds = 365 * 86_400, share = 0.5, file = `${count++}/pair.pem` } = {}) {
  const clock = manualClock(START);
  const authority = createAuthority('ca', new Date(START));
  const ending = new AbortController();
  const store = certificateStore(join(folder, file));
  const made = {
    clock,
    store,
    ending,
    asked: [] as CertificateTerms[],
    problems: [] as (string | null)[],
    renewed: 0,
    terms: {
      commonName: 'system:node:n1',
      organizations: ['system:nodes'],
      names: ['n1'],
    } as CertificateTerms | null,
    refuse: null as string | null,
    start() {
      const keeper = keepCertificate({
        what: 'certificate',
        store,
        terms: () => made.terms,
        onProblem: (problem) => made.problems.push(problem),
        async obtain(terms, key) {
          made.asked.push(terms);
          if (made.refuse !== null) throw new Error(made.refuse);
          return authority.sign(parseCertificateRequest(createCertificateRequest(terms, key)), {
            keyUsage: ['digital signature'],
            extendedKeyUsage: ['client auth'],
            from: new Date(clock.now() + 300_000),
            seconds,
          });
        },
        clock,
        random: () => share,
        logger: silentLogger,
        signal: ending.signal,
      });
      keeper.onRenewal(() => made.renewed++);
      return keeper;
    },
    /** Advances hour by hour, so that what a timer starts can end before the next one. */
    async pass(ms: number) {
      for (let left = ms; left > 0; left -= HOUR) {
        clock.advance(Math.min(left, HOUR));
        await settled();
      }
    },
  };
  return made;
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('without a certificate one is requested at once, and kept in a file of root', async () => {
  const { start, asked, store, ending } = scene();
  const keeper = start();
  assert.equal(keeper.current(), null);
  await settled();
  assert.deepEqual(asked[0]?.names, ['n1']);
  assert.deepEqual(store.read()?.names, ['n1']);
  assert.equal((statSync(store.file).mode & 0o777).toString(8), '600');
  ending.abort();
});

test('a year-long certificate is renewed at 80 % of its life, though timers hold 24 days', async () => {
  const made = scene();
  made.start();
  await settled();
  const before = made.store.read()?.cert;
  await made.pass(291 * DAY);
  assert.equal(made.asked.length, 1);
  await made.pass(2 * DAY);
  assert.equal(made.asked.length, 2);
  assert.equal(made.renewed, 2);
  assert.notEqual(made.store.read()?.cert, before);
  made.ending.abort();
});

test('an agent that starts again uses the certificate that it has', async () => {
  const made = scene();
  made.start();
  await settled();
  made.ending.abort();
  const again = scene({ file: made.store.file.slice(folder.length + 1) });
  const keeper = again.start();
  assert.equal(keeper.current()?.cert, made.store.read()?.cert);
  await settled();
  assert.equal(again.asked.length, 0);
  again.ending.abort();
});

test('changed names are requested at once, equal ones not', async () => {
  const made = scene();
  const keeper = made.start();
  await settled();
  keeper.recheck();
  await settled();
  assert.equal(made.asked.length, 1);
  made.terms = { commonName: 'system:node:n1', organizations: ['system:nodes'], names: ['10.0.0.9', 'n1'] };
  keeper.recheck();
  await settled();
  await settled();
  assert.deepEqual(keeper.current()?.names, ['10.0.0.9', 'n1']);
  made.ending.abort();
});

test('nothing is requested before it is known what for', async () => {
  const made = scene();
  made.terms = null;
  const keeper = made.start();
  await made.pass(3 * HOUR);
  assert.equal(made.asked.length, 0);
  made.terms = { commonName: 'system:node:n1', organizations: ['system:nodes'], names: ['n1'] };
  keeper.recheck();
  await settled();
  assert.equal(made.asked.length, 1);
  made.ending.abort();
});

test('a refusal is said once, repeated ever more slowly, and taken back when it ends', async () => {
  const made = scene();
  made.refuse = 'denied';
  made.start();
  await settled();
  for (let i = 0; i < 60; i++) {
    made.clock.advance(1000);
    await settled();
  }
  assert.equal(made.asked.length, 5);
  assert.equal(made.problems.length, 1);
  assert.match(made.problems[0] ?? '', /failed to get a certificate.*there is none.*denied/);
  made.refuse = null;
  await made.pass(HOUR);
  assert.equal(made.problems.at(-1), null);
  assert.ok(made.store.read());
  made.ending.abort();
});

test('a signer whose certificates expire at once is not asked in a loop', async () => {
  const made = scene({ seconds: 1 });
  made.start();
  for (let i = 0; i < 20; i++) await settled();
  made.clock.advance(301_000);
  for (let i = 0; i < 20; i++) await settled();
  assert.ok(made.asked.length <= 2, `${made.asked.length} requests`);
  made.ending.abort();
});

for (const [name, text] of [
  ['empty', ''],
  ['no PEM', 'hello'],
  ['a certificate without its key', createAuthority('ca', new Date(START)).cert],
  [
    'a key of another certificate',
    createAuthority('a', new Date(START)).cert + createAuthority('b', new Date(START)).key,
  ],
] as const) {
  test(`a damaged file is as none: ${name}`, () => {
    const file = join(folder, `damaged-${count++}`);
    writeFileSync(file, text);
    assert.equal(certificateStore(file).read(), null);
  });
}
