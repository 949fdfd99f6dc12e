import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ExplainedEndpoint, Explanation, StepSubject } from '../observe/explanation.ts';
import { compare } from './agreement.ts';
import { movedCounters, readCounterLines, readCounterPairs } from './counters.ts';
import type { End, Hop, Leg } from './hops.ts';
import type { TracedLookup } from './lookup.ts';
import type { Answer } from './outcome.ts';
import { renderLookups, renderTrace } from './trace-text.ts';

const endpoint: ExplainedEndpoint = {
  ...{ address: '10.244.2.2', port: 8080, pod: 'default/web', node: 'node-2', odds: 1, terminating: false },
  ...{ masquerade: false, hairpin: false, nextHop: 'route to node-2', arrival: 'answered' },
  clientSeen: '10.244.1.2',
};
const SUBJECTS: readonly StepSubject[] = ['name', 'entry', 'rule', 'endpoints', 'source', 'arrival'];

const explanation = (changes: Partial<Explanation> = {}): Explanation => ({
  from: 'pod default/client',
  to: 'web',
  packet: {
    ...{ source: '10.244.1.2', sourceClass: 'pod', destination: '10.96.0.1', port: 80 },
    ...{ protocol: 'TCP', node: 'node-1' },
  },
  steps: SUBJECTS.map((subject) => ({
    subject,
    object: 'Service default/web',
    ruleOrKey: null,
    text: subject,
  })),
  endpoints: [endpoint],
  clientSeen: null,
  verdict: 'delivered',
  reason: '',
  causes: [],
  missing: [],
  askNode: null,
  ...changes,
});

const end = (text: string): End => {
  const at = text.lastIndexOf(':');
  return { ip: text.slice(0, at), port: Number(text.slice(at + 1)) };
};
const hop = (place: string, direction: 'in' | 'out', source: string, destination: string): Hop => ({
  ...{ sinceUs: 0, place, device: 'eth0', deviceText: 'eth0', direction, tunnel: null },
  ...{ source: end(source), destination: end(destination), changes: [] },
});
const leg = (...hops: Hop[]): Leg => ({
  way: 'there',
  kind: 'SYN',
  error: null,
  isRelayed: false,
  hops,
  repeatsUs: [],
});

const step = { object: null, ruleOrKey: null, text: '' } as const;
const first = [
  hop('pod default/client', 'out', '10.244.1.2:4000', '10.96.0.1:80'),
  hop('node-1', 'in', '10.244.1.2:4000', '10.96.0.1:80'),
];
const delivered = leg(...first, hop('pod default/web', 'in', '10.244.1.2:4000', '10.244.2.2:8080'));

describe('explain is compared with the packet', () => {
  const answered: Answer = { kind: 'answered' };
  const rows: {
    name: string;
    said?: Partial<Explanation>;
    legs: readonly Leg[];
    answer?: Answer;
    /** By subject; the others are right. */
    wrong?: Partial<Record<StepSubject, RegExp | null>>;
    verdict?: boolean | null;
  }[] = [
    { name: 'every step is right', legs: [delivered] },
    {
      name: 'another endpoint',
      legs: [leg(...first, hop('node-2', 'in', '10.244.1.2:4000', '10.244.2.9:8080'))],
      wrong: { rule: /10\.244\.2\.9:8080/, endpoints: /10\.244\.2\.9:8080/, source: null },
    },
    {
      name: 'another source',
      legs: [leg(...first, hop('pod default/web', 'in', '172.30.0.11:5000', '10.244.2.2:8080'))],
      wrong: { source: /172\.30\.0\.11/ },
    },
    {
      name: 'another node',
      legs: [leg(hop('node-2', 'in', '10.244.1.2:4000', '10.244.2.2:8080'))],
      wrong: { entry: /node-1/ },
    },
    {
      name: 'no answer, although delivered was said',
      legs: [leg(...first)],
      answer: { kind: 'nothing', last: { place: 'node-1', device: 'eth0' } },
      wrong: { rule: null, endpoints: null, source: null, arrival: /verdict/ },
      verdict: false,
    },
    {
      name: 'explain could not know',
      said: { verdict: 'unknown' },
      legs: [delivered],
      wrong: { arrival: null },
      verdict: null,
    },
    {
      name: "the last hop is a proxy's listener, which explain names",
      said: {
        verdict: 'dropped',
        steps: [
          { ...step, subject: 'rule', to: [end('172.30.0.11:39611')] },
          { ...step, subject: 'endpoints' },
        ],
      },
      legs: [leg(...first, hop('node-1', 'in', '10.244.1.2:4000', '172.30.0.11:39611'))],
      answer: { kind: 'nothing', last: { place: 'node-1', device: 'fl0' } },
      wrong: { rule: null, endpoints: null },
    },
    {
      name: 'the rule of another endpoint than the chosen one',
      said: {
        endpoints: [endpoint, { ...endpoint, address: '10.244.2.9' }],
        steps: [
          { ...step, subject: 'rule', to: [end('10.244.2.9:8080')] },
          { ...step, subject: 'endpoints' },
        ],
      },
      legs: [delivered],
      wrong: { rule: null },
    },
    { name: 'some endpoints refuse', said: { verdict: 'partial' }, legs: [delivered] },
  ];
  for (const { name, said = {}, legs, answer = answered, wrong = {}, verdict = true } of rows) {
    test(name, () => {
      const { steps, isVerdictRight } = compare(explanation(said), legs, answer);
      assert.equal(isVerdictRight, verdict);
      for (const { step, isRight, seen } of steps) {
        const expected = wrong[step.subject];
        if (expected === undefined) assert.equal(isRight, true, step.subject);
        else if (expected === null) assert.equal(isRight, null, step.subject);
        else assert.match(seen ?? '', expected, step.subject);
      }
    });
  }
  test('a datagram that arrives without an answer is delivered', () => {
    const packet = explanation().packet;
    const udp = explanation({ packet: packet && { ...packet, protocol: 'UDP' } });
    const { isVerdictRight } = compare(udp, [delivered], { kind: 'nothing', last: null });
    assert.equal(isVerdictRight, true);
  });
});

/** A question whose resolver was told `said`, and the answer when it was asked once more. */
const lookup = (said: string, answer: Answer, legs: readonly Leg[] = []): TracedLookup => ({
  ...{ name: 'web.default.svc', type: 'A', server: '10.96.0.10', said },
  trace: {
    legs,
    answer,
    answeredAfterMs: 0.5,
    counters: [],
    drops: [],
    sizes: [],
    lostFrames: 0,
    clocks: [],
  },
});

describe('questions to name servers are compared with the same questions, asked once more', () => {
  const nothing: Answer = { kind: 'nothing', last: null };
  const rows = [
    ['an address', '10.96.0.1', { kind: 'answered' }, null],
    ['a name that does not exist', 'NXDOMAIN', { kind: 'answered' }, null],
    ['no answer, twice', 'no answer', nothing, null],
    ['an error of the system, twice', 'EHOSTUNREACH', nothing, null],
    ['no longer an answer', '10.96.0.1', nothing, /not answered now/],
    ['an answer by now', 'no answer', { kind: 'answered' }, /answers now/],
  ] as const;
  for (const [name, said, answer, seen] of rows) {
    test(name, () => {
      const step: Explanation['steps'][number] = {
        subject: 'name',
        object: null,
        text: `web.default.svc: ${said}`,
        ruleOrKey: 'DNS query for web.default.svc to 10.96.0.10',
        question: { name: 'web.default.svc', server: '10.96.0.10', result: '10.96.0.1' },
      };
      const asked = explanation({ steps: [step] });
      const [compared] = compare(asked, [], { kind: 'answered' }, [lookup(said, answer)]).steps;
      assert.equal(compared?.isRight, seen === null);
      if (seen) assert.match(compared?.seen ?? '', seen);
    });
  }
});

test('the text of a question: its way, the way of the answer, and the result', () => {
  const there = {
    ...leg(hop('pod default/client', 'out', '10.244.1.2:4000', '10.96.0.10:53')),
    kind: 'datagram' as const,
  };
  const back: Leg = {
    ...leg(hop('pod default/client', 'in', '10.96.0.10:53', '10.244.1.2:4000')),
    ...{ way: 'back', kind: 'answer' },
  };
  assert.equal(
    renderLookups([lookup('10.96.0.1', { kind: 'answered' }, [there, back])]),
    `DNS query to 10.96.0.10: web.default.svc A
  0 µs  pod default/client  out eth0  10.244.1.2:4000 → 10.96.0.10:53

DNS answer
  0 µs  pod default/client  in  eth0  10.96.0.10:53 → 10.244.1.2:4000
  DELIVERED after 500 µs: 10.96.0.1

`,
  );
  assert.equal(renderLookups([]), '');
});

test('counters of undelivered packets that rose are named, others are not', () => {
  const before = new Map([
    ...readCounterPairs('Tcp: ActiveOpens OutRsts\nTcp: 1 2\nUdp: NoPorts\nUdp: 0\n'),
    ...readCounterLines('Ip6OutNoRoutes                  \t4\n'),
  ]);
  const after = new Map([
    ...readCounterPairs('Tcp: ActiveOpens OutRsts\nTcp: 9 3\nUdp: NoPorts\nUdp: 0\n'),
    ...readCounterLines('Ip6OutNoRoutes                  \t6\n'),
  ]);
  assert.deepEqual(
    movedCounters('node-1', before, after).map(({ name, by }) => [name, by]),
    [
      ['Tcp OutRsts', 1],
      ['Ip6OutNoRoutes', 2],
    ],
  );
});

test('the text has a table of hops, the verdict, the counters, the fix and the compared steps', () => {
  const changed: Hop = {
    ...hop('node-1', 'out', '10.244.1.2:4000', '10.244.2.2:8080'),
    sinceUs: 1250,
    changes: [{ field: 'destination', before: '10.96.0.1:80', after: '10.244.2.2:8080', by: ['nft: map m'] }],
  };
  const answer: Answer = { kind: 'nothing', last: { place: 'node-1', device: 'uplink eth0' } };
  const said = explanation({
    verdict: 'dropped',
    steps: [{ subject: 'entry', object: null, ruleOrKey: null, text: 'enters node-1' }],
    causes: [{ text: 'a policy denies it', object: null, field: null, fix: 'add a rule' }],
  });
  const legs = [{ ...leg(...first, changed), repeatsUs: [1_001_250] }];
  const counters = [{ place: 'node-2', name: 'nft x', by: 1, text: 'denied' }];
  const result = {
    legs,
    answer,
    answeredAfterMs: null,
    counters,
    drops: [],
    sizes: [],
    lostFrames: 0,
    clocks: [],
  };
  assert.equal(
    renderTrace(said, result, compare(said, legs, answer)),
    `pod default/client → web (10.96.0.1:80/TCP)

SYN to the server
     0 µs  pod default/client  out eth0  10.244.1.2:4000 → 10.96.0.1:80
     0 µs  node-1              in  eth0
  1.25 ms                      out eth0  10.244.1.2:4000 → 10.244.2.2:8080
      destination changed from 10.96.0.1:80 to 10.244.2.2:8080
        by nft: map m
  sent again the same way after 1.0 s

DROPPED: last seen at node-1, uplink eth0 (explain: DROPPED, which is right)
  counter at node-2: nft x +1 (denied)
  because a policy denies it
  fix: add a rule

explain said:
  ✓ enters node-1
`,
  );
});

test('in a narrow terminal places, and addresses that do not fit, have lines of their own', () => {
  const changed: Hop = {
    ...hop('node-1', 'out', 'fd00:10:244:1::2:40000', 'fd00:10:244:2::2:8080'),
    changes: [{ field: 'destination', before: '[fd00::1]:80', after: '[fd00:10:244:2::2]:8080', by: [] }],
  };
  const legs = [leg(...first, changed)];
  const said = explanation({ verdict: 'delivered' });
  const result = {
    legs,
    answer: { kind: 'answered' },
    answeredAfterMs: 1,
    counters: [],
    drops: [],
    sizes: [],
    lostFrames: 0,
    clocks: [],
  } as const;
  const text = renderTrace(said, result, compare(said, legs, result.answer), [], 62);
  assert.equal(
    text.slice(text.indexOf('SYN'), text.indexOf('\nDELIVERED')),
    `SYN to the server
  pod default/client
    0 µs  out eth0  10.244.1.2:4000 → 10.96.0.1:80
  node-1
    0 µs  in  eth0
    0 µs  out eth0
              [fd00:10:244:1::2]:40000 → [fd00:10:244:2::2]:8080
      destination changed from [fd00::1]:80 to [fd00:10:244:2::2]:8080
`,
  );
});
