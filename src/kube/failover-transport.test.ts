import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { readBody } from './client.ts';
import { failoverTransport } from './failover-transport.ts';
import { pass, type ServerState, scriptedServers } from './testing/scripted-servers.ts';
import type { ApiRequest } from './transport.ts';

type Step =
  /** Servers change. */
  | { set: Record<string, ServerState> }
  /** The list of servers changes; an Error: it cannot be read. */
  | { list: string | Error }
  | { wait: number }
  /** A request, and the server that answers it; or the status of its refusal; or its failure. */
  | { ask: ApiRequest['method']; answer: string | number | RegExp; within?: number };

const get = (answer: string | number | RegExp, within = 0): Step => ({ ask: 'GET', answer, within });
const post = (answer: string | number | RegExp, within = 0): Step => ({ ask: 'POST', answer, within });

const CASES: {
  name: string;
  servers?: string;
  steps: Step[];
  asked?: string[];
  said?: RegExp[];
  returns?: number;
}[] = [
  {
    name: 'the first server is preferred',
    steps: [get('a'), get('a')],
    asked: ['a GET /x', 'a GET /x'],
    said: [],
  },
  {
    name: 'one server alone is not asked anything else',
    servers: 'a',
    steps: [get('a')],
    asked: ['a GET /x'],
  },
  {
    name: 'one server alone: its refusals and failures are passed on',
    servers: 'a',
    steps: [
      { set: { a: 'unready' } },
      get(503),
      { set: { a: 'broken' } },
      get(/ECONNRESET/),
      { set: { a: 'up' } },
      get('a'),
    ],
  },
  {
    name: 'at the start, a server that refuses connections',
    steps: [{ set: { a: 'refused' } }, get('b')],
    asked: ['b GET /x'],
    said: [],
  },
  {
    name: 'at the start, servers that do not answer: less than two seconds',
    steps: [{ set: { a: 'silent', b: 'silent' } }, get('c', 1100)],
    asked: ['c GET /x'],
  },
  {
    name: 'a server that dies: the request is sent to another one, and said once',
    steps: [get('a'), { set: { a: 'refused' } }, get('b'), get('b')],
    asked: ['a GET /x', 'a GET /x', 'b GET /x', 'b GET /x'],
    said: [/^warn: API server a fails \(connect ECONNREFUSED 127.0.0.1:1\): using b$/],
  },
  {
    name: 'a write that was not sent is sent to another server',
    steps: [get('a'), { set: { a: 'refused' } }, post('b')],
    asked: ['a GET /x', 'a POST /x', 'b POST /x'],
  },
  {
    name: 'a write that may have been executed is not sent again, and the next request goes to another server',
    steps: [get('a'), { set: { a: 'broken' } }, post(/ECONNRESET/), post('b')],
    asked: ['a GET /x', 'a POST /x', 'b POST /x'],
  },
  {
    name: 'an incomplete response: the next request, a write as well, goes to another server at once',
    steps: [get('a'), { set: { a: 'cut' } }, get(/ETIMEDOUT/), post('b')],
    asked: ['a GET /x', 'a GET /x', 'b POST /x'],
    said: [/^warn: API server a fails \(the connection broke during a response: read ETIMEDOUT\): using b$/],
  },
  {
    name: 'a load balancer without servers answers 503',
    steps: [get('a'), { set: { a: 'unready' } }, get('b'), post('b')],
    asked: ['a GET /x', 'a GET /x', 'b GET /x', 'b POST /x'],
    said: [/^warn: API server a fails \(HTTP status 503\): using b$/],
  },
  {
    name: 'a write that is answered with 503 is not sent again',
    steps: [get('a'), { set: { a: 'unready' } }, post(503), post('b')],
  },
  {
    name: 'a server that refuses one request with 500, and is ready, stays in use',
    steps: [get('a'), { set: { a: 'failing' } }, get(500), get(500), { set: { a: 'up' } }, get('a')],
    asked: ['a GET /x', 'a GET /x', 'a GET /x', 'a GET /x'],
    said: [],
  },
  {
    name: 'all are not ready: their answer is passed on',
    steps: [
      { set: { a: 'unready', b: 'unready', c: 'unready' } },
      get(503),
      get(503),
      { set: { a: 'up' } },
      get('a'),
    ],
  },
  {
    name: 'a preferred server that returns is used again',
    steps: [{ set: { a: 'refused' } }, get('b'), { set: { a: 'up' } }, get('b'), { wait: 30_000 }, get('a')],
    said: [/^info: API server a answers again, and is used$/],
  },
  {
    name: 'the second one fails too',
    steps: [get('a'), { set: { a: 'refused', b: 'broken' } }, get('c')],
    said: [/^warn: API server a fails .*: using c$/],
  },
  {
    name: 'none answers: failures name all, at once, and any that returns is used within five seconds',
    steps: [
      { set: { a: 'refused', b: 'silent', c: 'refused' } },
      get(/^no API server answers: /, 11_000),
      { wait: 20_000 },
      get(/^no API server answers: .*a: connect ECONNREFUSED.*c: connect/),
      { set: { c: 'up' } },
      { wait: 1100 },
      get('c'),
    ],
    returns: 1,
  },
  {
    name: 'none answers for long: the list of servers is read again',
    servers: 'ab',
    steps: [
      { set: { a: 'refused', b: 'refused' } },
      get(/^no API server answers/, 600),
      { list: 'cd' },
      { wait: 32_000 },
      get('c'),
    ],
    returns: 1,
  },
  {
    name: 'the list of servers cannot be read while none answers: one line for each reason, and the first that returns is used',
    steps: [
      { set: { a: 'refused', b: 'refused', c: 'refused' } },
      get(/^no API server answers/, 600),
      { list: new Error('exec plugin "aws": exit 1') },
      { wait: 40_000 },
      get(/^exec plugin "aws": exit 1$/),
      { list: new Error('exec plugin "aws": exit 2') },
      { wait: 5000 },
      { list: 'abc' },
      { set: { b: 'up' } },
      { wait: 2000 },
      get('b'),
    ],
    said: [
      /^warn: failed to look for API servers, trying again: exec plugin "aws": exit 1$/,
      /^warn: failed to look for API servers, trying again: exec plugin "aws": exit 2$/,
    ],
    returns: 1,
  },
  {
    name: 'the list of servers cannot be read when a preferred server may be back: one line, and the next attempt finds it',
    steps: [
      { set: { a: 'refused' } },
      get('b'),
      { set: { a: 'up' } },
      { list: new Error('exec plugin "aws": exit 1') },
      { wait: 70_000 },
      { list: 'abc' },
      { wait: 30_000 },
      get('a'),
    ],
    said: [
      /^warn: failed to look for API servers, trying again: exec plugin "aws": exit 1$/,
      /^info: API server a answers again, and is used$/,
    ],
  },
  {
    name: 'a server that is no longer in the list',
    steps: [get('a'), { list: 'bc' }, get('b')],
    said: [],
  },
  {
    name: 'a second server becomes known',
    servers: 'a',
    steps: [get('a'), { list: 'ab' }, get('a'), { set: { a: 'refused' } }, get('b')],
    asked: ['a GET /x', 'a GET /x', 'a GET /x', 'b GET /x'],
  },
];

for (const { name, servers: letters = 'abc', steps, asked, said, returns } of CASES) {
  test(`several API servers: ${name}`, async () => {
    const clock = manualClock();
    const servers = scriptedServers('abcd');
    const lines: string[] = [];
    const say = (level: string) => (_: object, message: string) => void lines.push(`${level}: ${message}`);
    const logger: Logger = { ...silentLogger, info: say('info'), warn: say('warn') };
    let list: string | Error = letters;
    let returned = 0;
    const transport = failoverTransport({
      servers: async () => {
        if (list instanceof Error) throw list;
        return [...list].map(servers.address);
      },
      open: servers.open,
      onReturn: () => void returned++,
      clock,
      random: () => 0.99,
      logger,
    });
    for (const [i, step] of steps.entries()) {
      if ('set' in step)
        for (const [letter, state] of Object.entries(step.set)) servers.states.set(letter, state);
      else if ('list' in step) list = step.list;
      else if ('wait' in step) await pass(clock, step.wait);
      else {
        let answer: string | number | null = null;
        const ask = async () => {
          const { status, body } = await transport({ method: step.ask, path: '/x', headers: {} });
          const text = await readBody(body);
          answer = status === 200 ? text : status;
        };
        ask().catch((error: unknown) => {
          answer = messageOf(error);
        });
        for (let left = 3; left > 0 && answer === null; left--) await real();
        await pass(clock, step.within ?? 0);
        for (let left = 500; left > 0 && answer === null; left--) await real();
        if (step.answer instanceof RegExp) assert.match(String(answer), step.answer, `step ${i}`);
        else assert.equal(answer, step.answer, `step ${i}`);
      }
    }
    transport.close();
    if (asked) assert.deepEqual(servers.asked, asked);
    if (said) {
      assert.equal(lines.length, said.length, lines.join('\n'));
      for (const [i, line] of lines.entries()) assert.match(line, said[i] ?? /$^/);
    }
    if (returns !== undefined) assert.equal(returned, returns);
  });
}

/** Lets sockets of this machine answer. */
const real = () => new Promise((resolve) => setTimeout(resolve, 2));
