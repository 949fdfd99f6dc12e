import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { decodeMessage } from '../dns/decode.ts';
import { encodeMessage, encodeQuestion } from '../dns/encode.ts';
import { CLASS_IN, RCODE, TYPE } from '../dns/message.ts';
import { createNameLookups, type NameLookup, UNANSWERED_NS } from './name-lookups.ts';

const CLIENT = '10.244.1.2';
const SERVER = { ip: '10.96.0.10', port: 53 };

/** A question, and its answer after 1 ms: an address, a response code, or null: none. */
interface Step {
  readonly name: string;
  readonly type?: 'A' | 'AAAA';
  readonly answer: string | 'NXDOMAIN' | 'NOERROR' | null;
  /** The client's port; default 4000. */
  readonly port?: number;
}

interface Row {
  readonly name: string;
  readonly steps: readonly Step[];
  /** "name (types) rcode answers; tried …; N questions" */
  readonly lines: readonly string[];
}

const rows: Row[] = [
  {
    name: 'a name of a Service',
    steps: [{ name: 'web.default.svc.cluster.local', answer: '10.96.0.1' }],
    lines: ['web.default.svc.cluster.local (A) NOERROR 10.96.0.1; 1 questions'],
  },
  {
    name: 'both address types in one line',
    steps: [
      { name: 'web.default.svc.cluster.local', answer: '10.96.0.1' },
      { name: 'web.default.svc.cluster.local', type: 'AAAA', answer: 'NOERROR' },
    ],
    lines: ['web.default.svc.cluster.local (A AAAA) NOERROR 10.96.0.1; 2 questions'],
  },
  {
    name: 'a search path until the name is found',
    steps: ['web.lab.default.svc.cluster.local', 'web.lab.svc.cluster.local'].map((name, i) => ({
      name,
      answer: i === 0 ? ('NXDOMAIN' as const) : '10.96.0.2',
    })),
    lines: [
      'web.lab.svc.cluster.local (A) NOERROR 10.96.0.2; tried web.lab.default.svc.cluster.local; 2 questions',
    ],
  },
  {
    name: 'a search path to a name outside',
    steps: [
      { name: 'example.com.default.svc.cluster.local', answer: 'NXDOMAIN' },
      { name: 'example.com.svc.cluster.local', answer: 'NXDOMAIN' },
      { name: 'example.com.cluster.local', answer: 'NXDOMAIN' },
      { name: 'example.com.corp.test', answer: 'NXDOMAIN' },
      { name: 'example.com', answer: '192.0.2.1' },
    ],
    lines: [
      'example.com (A) NOERROR 192.0.2.1; tried example.com.default.svc.cluster.local example.com.svc.cluster.local example.com.cluster.local example.com.corp.test; 5 questions',
    ],
  },
  {
    name: 'a search path without a result',
    steps: [
      { name: 'nothing.default.svc.cluster.local', answer: 'NXDOMAIN' },
      { name: 'nothing.svc.cluster.local', answer: 'NXDOMAIN' },
      { name: 'nothing.cluster.local', answer: 'NXDOMAIN' },
      { name: 'nothing', answer: 'NXDOMAIN' },
    ],
    lines: [
      'nothing (A) NXDOMAIN ; tried nothing.default.svc.cluster.local nothing.svc.cluster.local nothing.cluster.local; 4 questions',
    ],
  },
  {
    name: 'Services of the same name in two namespaces',
    steps: [
      { name: 'web.default.svc.cluster.local', answer: '10.96.0.1' },
      { name: 'web.lab.svc.cluster.local', answer: '10.96.0.2' },
    ],
    lines: [
      'web.default.svc.cluster.local (A) NOERROR 10.96.0.1; 1 questions',
      'web.lab.svc.cluster.local (A) NOERROR 10.96.0.2; 1 questions',
    ],
  },
  {
    name: 'two lookups of one name at the same time',
    steps: [
      { name: 'nothing.default.svc.cluster.local', answer: 'NXDOMAIN' },
      { name: 'nothing.default.svc.cluster.local', answer: 'NXDOMAIN', port: 4001 },
      { name: 'nothing.svc.cluster.local', answer: 'NXDOMAIN' },
      { name: 'nothing.svc.cluster.local', answer: 'NXDOMAIN', port: 4001 },
    ],
    lines: ['nothing.svc.cluster.local (A) NXDOMAIN ; tried nothing.default.svc.cluster.local; 4 questions'],
  },
  {
    name: 'no answer',
    steps: [{ name: 'slow.example', answer: null }],
    lines: ['slow.example (A) null ; 1 questions'],
  },
];

describe('DNS lookups by their packets', () => {
  for (const { name, steps, lines } of rows) {
    test(name, () => {
      const found: string[] = [];
      const lookups = createNameLookups('cluster.local', (lookup) => found.push(lineOf(lookup)));
      for (const [i, step] of steps.entries()) {
        const client = { ip: CLIENT, port: step.port ?? 4000 };
        const type = TYPE[step.type ?? 'A'];
        const question = encodeQuestion(i, step.name, type);
        const at = BigInt(i) * 2_000_000n;
        // Each at two devices.
        lookups.datagram(client, SERVER, question, at);
        lookups.datagram(client, SERVER, question, at + 1000n);
        const answer = step.answer && answerOf(question, step.answer);
        if (!answer) continue;
        lookups.datagram(SERVER, client, answer, at + 1_000_000n);
        lookups.datagram(SERVER, client, answer, at + 1_001_000n);
      }
      lookups.expire(BigInt(steps.length) * 2_000_000n);
      assert.deepEqual(found, [], 'the next question may still come');
      lookups.expire(UNANSWERED_NS + 1_000_000_000n);
      assert.deepEqual(found, lines);
    });
  }
});

test('a client that repeats a lookup without a pause has a line for each two seconds, with the time of the first one', () => {
  const counts: number[] = [];
  const lookups = createNameLookups('cluster.local', ({ questions, micros }) => {
    counts.push(questions);
    assert.equal(micros, 1000);
  });
  const client = { ip: CLIENT, port: 4000 };
  for (let i = 0; i < 50; i++) {
    const at = BigInt(i) * 100_000_000n;
    const question = encodeQuestion(i, 'nothing', TYPE.A);
    lookups.datagram(client, SERVER, question, at);
    lookups.datagram(SERVER, client, answerOf(question, 'NXDOMAIN'), at + 1_000_000n);
    lookups.expire(at + 50_000_000n);
  }
  assert.deepEqual(counts, [21, 21]);
});

test('a lookup that the tables of the node deny is reported once, at once', () => {
  const found: NameLookup[] = [];
  const lookups = createNameLookups(
    'cluster.local',
    (lookup) => found.push(lookup),
    (_, server) => (server.ip === SERVER.ip ? 'a policy denies it' : null),
  );
  const client = { ip: CLIENT, port: 4000 };
  lookups.datagram(client, SERVER, encodeQuestion(1, 'web', TYPE.A), 0n);
  lookups.expire(100_000_000n);
  assert.deepEqual(found, [], 'the answer may still come');
  lookups.expire(300_000_000n);
  assert.deepEqual(
    found.map(({ reason, rcode, micros }) => [reason, rcode, micros]),
    [['a policy denies it', null, 300_000]],
  );
  lookups.datagram(client, SERVER, encodeQuestion(1, 'web', TYPE.A), 1_000_000_000n);
  lookups.expire(2n * UNANSWERED_NS + 1_000_000_000n);
  assert.equal(found.length, 1);
});

function lineOf({ name, types, rcode, answers, tried, questions }: NameLookup): string {
  const path = tried.length > 0 ? `; tried ${tried.join(' ')}` : '';
  return `${name} (${types.join(' ')}) ${rcode} ${answers.join(' ')}${path}; ${questions} questions`;
}

function answerOf(bytes: Buffer, answer: string): Buffer {
  const message = decodeMessage(bytes);
  const question = message?.questions[0];
  assert.ok(message && question);
  const rcode = answer === 'NXDOMAIN' ? RCODE.NXDOMAIN : RCODE.NOERROR;
  const address = /^[0-9.]+$/.test(answer) ? Uint8Array.from(answer.split('.').map(Number)) : null;
  return encodeMessage({
    header: { ...message, response: true, rcode },
    question,
    answers: address ? [{ name: question.name, type: TYPE.A, class: CLASS_IN, ttl: 5, data: address }] : [],
    authorities: [],
    additionals: [],
    edns: null,
  });
}
