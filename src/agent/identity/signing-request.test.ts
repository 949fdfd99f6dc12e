import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ApiError, type Client, type WatchEvent } from '../../kube/client.ts';
import type { CertificateSigningRequest } from '../../kube/types.ts';
import { createCertificateRequest, parseCertificateRequest } from '../../lib/certificate-request.ts';
import { manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createSigningKey } from '../../lib/pki.ts';
import { nodeTerms } from './node-identity.ts';
import { obtainCertificate, requestName, SIGNERS } from './signing-request.ts';

const terms = nodeTerms('n1');
const key = createSigningKey();
const encoded = (text: string) => Buffer.from(text).toString('base64');
const requestOf = (ownKey: string) => encoded(createCertificateRequest(terms, ownKey));

type Status = NonNullable<CertificateSigningRequest['status']>;
const condition = (type: string, message: string): Status => ({
  conditions: [{ type, status: 'True', reason: 'Why', message }],
});

/** An API server with one request; `answer` sets its status or deletes it. */
function server(
  existing: CertificateSigningRequest | null,
  refusals: { create?: ApiError; list?: ApiError } = {},
) {
  const clock = manualClock();
  const ending = new AbortController();
  let stored = existing;
  let wake = Promise.withResolvers<void>();
  const events: WatchEvent<CertificateSigningRequest>[] = [];
  const made: CertificateSigningRequest[] = [];
  const waiting: string[] = [];
  const client = {
    async create(_: unknown, object: CertificateSigningRequest) {
      if (refusals.create) throw refusals.create;
      if (stored) throw new ApiError(409, { reason: 'AlreadyExists' }, null, 'POST');
      made.push(object);
      stored = { ...object, metadata: { name: object.metadata?.name ?? 'csr-1', resourceVersion: '1' } };
      return stored;
    },
    get: async () => stored,
    async list() {
      if (refusals.list) throw refusals.list;
      return { items: stored ? [stored] : [], resourceVersion: '1' };
    },
    async *watch(_: unknown, { signal }: { signal: AbortSignal }) {
      signal.addEventListener('abort', () => wake.resolve());
      while (!signal.aborted) {
        for (const event of events.splice(0)) yield event;
        await wake.promise;
        wake = Promise.withResolvers();
      }
    },
  } as unknown as Client;
  return {
    clock,
    ending,
    made,
    waiting,
    answer(status: Status | 'deleted') {
      const object = {
        ...(stored as CertificateSigningRequest),
        metadata: { ...stored?.metadata, resourceVersion: '2' },
        ...(status === 'deleted' ? {} : { status }),
      };
      events.push({ type: status === 'deleted' ? 'DELETED' : 'MODIFIED', object });
      wake.resolve();
    },
    obtain: (name: string | null) =>
      obtainCertificate({
        ...{ client, clock, random: () => 0, logger: silentLogger, signal: ending.signal },
        ...{ signer: 'client', terms, key, name, onWaiting: (waitingFor) => waiting.push(waitingFor) },
      }),
  };
}

const settled = async () => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};
const existing = (ownKey: string, status?: Status): CertificateSigningRequest => ({
  metadata: { name: 'node-csr-a', resourceVersion: '1' },
  spec: { request: requestOf(ownKey), signerName: SIGNERS.client.name },
  ...(status ? { status } : {}),
});

test('a request names the signer, the usages and the node, and yields the signed certificate', async () => {
  const { obtain, made, answer } = server(null);
  const result = obtain(null);
  await settled();
  answer({ certificate: encoded('signed') });
  assert.equal(await result, 'signed');
  const [{ metadata, spec } = { metadata: {}, spec: { request: '' } }] = made;
  const { request, ...rest } = spec;
  assert.deepEqual(
    { metadata, rest },
    {
      metadata: { generateName: 'csr-' },
      rest: { signerName: SIGNERS.client.name, usages: ['digital signature', 'client auth'] },
    },
  );
  const parsed = parseCertificateRequest(Buffer.from(request, 'base64').toString());
  assert.deepEqual(
    [parsed.commonName, parsed.organizations, parsed.alternativeNames],
    ['system:node:n1', ['system:nodes'], null],
  );
});

test('the name of the first request is that of its key', () => {
  const name = requestName(key, terms);
  assert.match(name, /^node-csr-[\w-]{43}$/);
  assert.equal(name, requestName(key, terms));
  assert.notEqual(name, requestName(createSigningKey(), terms));
  assert.notEqual(name, requestName(key, nodeTerms('n2')));
});

test('an earlier request of the same key is found, and signed already', async () => {
  const { obtain, made } = server(existing(key, { certificate: encoded('signed') }));
  assert.equal(await obtain('node-csr-a'), 'signed');
  assert.equal(made.length, 0);
});

test('a request that stays without approval is said once', async () => {
  const { obtain, clock, waiting, answer } = server(null);
  const result = obtain(null);
  await settled();
  clock.advance(9000);
  assert.deepEqual(waiting, []);
  clock.advance(60_000);
  assert.deepEqual(waiting, ['csr-1']);
  answer({ certificate: encoded('signed') });
  assert.equal(await result, 'signed');
});

const forbidden = new ApiError(403, { reason: 'Forbidden', message: 'User "n" cannot' }, null, 'GET');

describe('a request that yields no certificate', () => {
  const rows: readonly {
    name: string;
    of?: CertificateSigningRequest;
    refusals?: Parameters<typeof server>[1];
    act?: (one: ReturnType<typeof server>) => void;
    expected: RegExp;
  }[] = [
    {
      name: 'denied',
      act: ({ answer }) => answer(condition('Denied', 'unknown machine')),
      expected: /was denied \(Why: unknown machine\)/,
    },
    {
      name: 'the signer refused it',
      act: ({ answer }) => answer(condition('Failed', 'wrong usage')),
      expected: /could not be signed \(Why: wrong usage\)/,
    },
    { name: 'deleted', act: ({ answer }) => answer('deleted'), expected: /was deleted/ },
    {
      name: 'not answered in 15 minutes',
      act: ({ clock }) => clock.advance(15 * 60_000),
      expected: /was not answered in 15 minutes/,
    },
    { name: 'the agent ends', act: ({ ending }) => ending.abort(new Error('ended')), expected: /ended/ },
    {
      name: 'an earlier one that was denied',
      of: existing(key, condition('Denied', 'no')),
      expected: /denied/,
    },
    {
      name: 'an earlier one of another key',
      of: existing(createSigningKey()),
      expected: /exists with another key/,
    },
    { name: 'forbidden to create', refusals: { create: forbidden }, expected: /User "n" cannot/ },
    { name: 'forbidden to list', refusals: { list: forbidden }, expected: /not allowed to list/ },
  ];
  for (const { name, of, refusals, act, expected } of rows) {
    test(name, async () => {
      const one = server(of ?? null, refusals);
      const result = assert.rejects(one.obtain('node-csr-a'), expected);
      await settled();
      act?.(one);
      await result;
    });
  }
});
