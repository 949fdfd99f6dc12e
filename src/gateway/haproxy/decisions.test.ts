import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { decide } from '../decide.ts';
import type { Decision, GatewayRequest } from '../decision.ts';
import { indexRoutes } from '../route-index.ts';
import type {
  HeaderChanges,
  HostTable,
  PathMatch,
  RouteAction,
  RouteMap,
  RouteRow,
  ValueMatch,
} from '../route-map.ts';
import { forward, httpMap, listener, NO_CHANGES, row, table } from '../testing/maps.ts';
import {
  HAPROXY,
  type RunningProxy,
  type Seen,
  sendRaw,
  startMirror,
  startProxy,
} from './testing/running-proxy.ts';

/** Random maps and requests; a larger number: FAIRLEAD_GATEWAY_MAPS. */
const MAPS = Number(process.env['FAIRLEAD_GATEWAY_MAPS'] ?? 12);
const REQUESTS = 120;
const BACKENDS = ['b/one:80', 'b/two:80', 'b/three:80'];

/** A generator of equal numbers for equal seeds (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

describe('decisions of HAProxy', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  const mirrors = new Map<string, Awaited<ReturnType<typeof startMirror>>>();
  before(async () => {
    proxy = await startProxy();
    for (const key of BACKENDS)
      mirrors.set(key, await startMirror((_, response) => response.setHeader('x-backend', key)));
  });
  after(async () => {
    await proxy?.stop();
    for (const mirror of mirrors.values()) await mirror.close();
  });

  for (let seed = 1; seed <= MAPS; seed++) {
    test(`equal those of decide(): map ${seed}`, async () => {
      const random = seeded(seed);
      const map = randomMap(random);
      const rendering = proxy.render(map);
      assert.deepEqual(rendering.refused, []);
      const endpoints = ({ key }: { key: string }) => [
        { address: '127.0.0.1', port: mirrors.get(key)?.port ?? 0 },
      ];
      assert.equal(await proxy.replace(rendering, endpoints), null);
      const index = indexRoutes(map);
      for (let i = 0; i < REQUESTS; i++) {
        const request = randomRequest(random);
        const head = [
          `${request.method} ${request.target} HTTP/1.1`,
          `Host: ${request.host}`,
          'Connection: close',
        ]
          .concat(request.headers.map(({ name, value }) => `${name}: ${value}`))
          .join('\r\n');
        const answer = await sendRaw(proxy.port, `${head}\r\n\r\n`);
        const expected = decide(index, request);
        assert.deepEqual(
          observed(answer, request),
          wanted(expected, request, answer.headers.get('x-backend') ?? null),
          `seed ${seed}:\n${head}\n${JSON.stringify(expected)}`,
        );
      }
    });
  }
});

function observed(answer: Awaited<ReturnType<typeof sendRaw>>, request: GatewayRequest): unknown {
  if (answer.status === 200 && answer.headers.has('x-backend')) {
    if (request.method === 'HEAD') return { forwarded: true };
    const seen = JSON.parse(utf8(answer.body)) as Seen;
    return {
      backend: answer.headers.get('x-backend'),
      host: seen.host,
      target: seen.target,
      set: valuesOf(seen, 'x-set'),
      client: valuesOf(seen, 'x-client'),
      answer: utf8(answer.headers.get('x-answer') ?? '') || null,
      cors: answer.headers.get('access-control-allow-origin') ?? null,
    };
  }
  const { status, headers } = answer;
  return {
    status,
    location: headers.get('location') ?? null,
    cors: headers.get('access-control-allow-origin') ?? null,
    methods: headers.get('access-control-allow-methods') ?? null,
  };
}

const valuesOf = ({ headers }: Seen, name: string) =>
  headers.filter((one) => one.name.toLowerCase() === name).map(({ value }) => utf8(value));

/** Bytes that were read as Latin-1. */
const utf8 = (text: string): string => Buffer.from(text, 'latin1').toString();

/** Returns what must be observed. `backend`: the one that answered, which is random among those with a weight. */
function wanted(decision: Decision, request: GatewayRequest, backend: string | null): unknown {
  const answered = (status: number) => ({ status, location: null, cors: null, methods: null });
  switch (decision.kind) {
    case 'error':
      return answered(decision.status);
    case 'redirect':
      return { ...answered(decision.status), location: decision.location };
    case 'preflight': {
      const value = (name: string) => decision.headers.find((one) => one.name === name)?.value ?? null;
      return {
        ...answered(decision.status),
        cors: value('access-control-allow-origin'),
        methods: value('access-control-allow-methods'),
      };
    }
    case 'forward': {
      const used = decision.backends.filter(({ weight }) => weight > 0);
      const chosen = backend === null ? undefined : used.find((one) => one.backend === backend);
      if (!chosen) return used.some((one) => one.backend === null) ? answered(500) : { backends: used };
      if (request.method === 'HEAD') return { forwarded: true };
      const client = request.headers.filter(({ name }) => name === 'x-client').map(({ value }) => value);
      return {
        backend,
        host: decision.host,
        target: decision.target,
        set: changed([], 'x-set', decision.request, chosen.request),
        client: changed(client, 'x-client', decision.request, chosen.request),
        answer: changed([], 'x-answer', chosen.response, decision.response).join(',') || null,
        cors: decision.cors.find(({ name }) => name === 'access-control-allow-origin')?.value ?? null,
      };
    }
    default:
      return { unexpected: decision };
  }
}

function changed(values: readonly string[], name: string, ...changes: readonly HeaderChanges[]): string[] {
  return changes.reduce<string[]>(
    (known, { remove, set, add }) => {
      let next = remove.includes(name) ? [] : known;
      for (const one of set) if (one.name === name) next = [one.value];
      return [...next, ...add.filter((one) => one.name === name).map(({ value }) => value)];
    },
    [...values],
  );
}

const PARTS = ['a', 'b', 'aa', 'a.b', 'x~y', 'q;z', "it's", '(', '100%25', ''];
const HOSTS = ['a.example', 'b.a.example', 'c.b.a.example', 'other.test', 'xa.example', '10.0.0.1', '[::1]'];
const VALUES = ['1', 'yes', 'a b', 'it\'s } " \\ # $HOME', '%[src]', '${x}', 'ä', '-', '--', ','];
const NAMES = ['x-one', 'x-two'];
const REGEXES = ['/a(/.*)?', '/(a|b)/([0-9]+)', '/[^/]+/b', '/.*\\.js', '/a+b{1,3}'];

function randomMap(random: () => number): RouteMap {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const chance = (share: number) => random() < share;
  const path = (): PathMatch => {
    if (chance(0.15)) return { kind: 'regex', regex: pick(REGEXES) };
    const text = `/${Array.from({ length: Math.floor(random() * 3) }, () => pick(PARTS.slice(0, -1))).join('/')}`;
    return chance(0.4) ? { kind: 'exact', path: text } : { kind: 'prefix', path: text };
  };
  const matches = (names: readonly string[]): ValueMatch[] =>
    names
      .filter(() => chance(0.12))
      .map((name) =>
        chance(0.3)
          ? { name, kind: 'regex', value: pick(['[0-9]+', 'y.*', '.*']) }
          : { name, kind: 'exact', value: pick(VALUES) },
      );
  const changes = (name: string): HeaderChanges =>
    chance(0.7)
      ? NO_CHANGES
      : {
          set: chance(0.5) ? [{ name, value: pick(VALUES) }] : [],
          add: chance(0.3) ? [{ name, value: pick(VALUES) }] : [],
          remove: chance(0.3) ? ['x-client'] : [],
        };
  const rewrite = (isPrefix: boolean) =>
    pick([
      null,
      { kind: 'full', path: pick(['/full', '/', '']) } as const,
      // The API allows it for prefixes only.
      isPrefix ? ({ kind: 'prefix', path: pick(['/new', '/', '/new/']) } as const) : null,
      { kind: 'captures', path: pick(['/$1', '/c$2/$1', '$1']) } as const,
    ]);
  const action = (match: PathMatch): RouteAction => {
    if (chance(0.1)) return { kind: 'error', status: pick([404, 500, 503]), reason: '' };
    if (chance(0.2))
      return {
        kind: 'redirect',
        scheme: pick([null, 'https', 'http'] as const),
        host: pick([null, 'to.example']),
        port: pick([null, 80, 443, 8080]),
        path: rewrite(match.kind === 'prefix'),
        status: pick([301, 302] as const),
        response: NO_CHANGES,
      };
    const count = chance(0.2) ? 3 : 1;
    const plain = forward(
      Array.from(
        { length: count },
        () => [chance(0.1) ? null : pick(BACKENDS), 1 + Math.floor(random() * 3)] as const,
      ),
      {
        request: changes('x-set'),
        response: changes('x-answer'),
        rewrite: chance(0.3)
          ? { host: pick([null, 'inner.example']), path: rewrite(match.kind === 'prefix') }
          : null,
        cors: chance(0.1)
          ? {
              origins: pick([['*'], ['https://one.test'], ['https://*.test', 'http://plain']]),
              methods: pick([['*'], ['GET', 'PUT']]),
              headers: ['x-h'],
              exposed: [],
              credentials: chance(0.5),
              maxAge: 5,
            }
          : null,
        bodyLimit: chance(0.05) ? 10 : null,
        sources: chance(0.05) ? [pick(['127.0.0.0/8', '10.0.0.0/8', 'fd00::/8'])] : [],
      },
    );
    return plain;
  };
  let rows = 0;
  const makeRows = (count: number): RouteRow[] =>
    Array.from({ length: count }, () => {
      const match = path();
      return row(`r${rows++}`, match, action(match), {
        method: chance(0.15) ? pick(['GET', 'POST']) : null,
        headers: matches(NAMES),
        query: matches(['q', 'r', 'q-x.y']),
      });
    });
  const tables = (hosts: readonly string[]): HostTable[] =>
    hosts.map((host) =>
      table(host, makeRows(1 + Math.floor(random() * 6)), host.startsWith('*') && chance(0.3)),
    );
  return httpMap(
    pick([
      [listener('', tables(['a.example', 'b.a.example', '*.a.example', '*.example', '']))],
      [
        listener('a.example', tables(['a.example'])),
        listener('*.example', tables(['xa.example', '*.example'])),
        listener('', tables([''])),
      ],
      [listener('*.a.example', tables(['*.a.example'])), listener('a.example', [])],
    ]),
  );
}

function randomRequest(random: () => number): GatewayRequest {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const chance = (share: number) => random() < share;
  const segments = Array.from({ length: Math.floor(random() * 4) }, () =>
    pick([...PARTS, '7', 'x.js', 'ab', 'aab']),
  );
  const tricky = chance(0.1)
    ? pick([
        '/..',
        '/./a',
        '/%2e%2e/b',
        '/a%2fb',
        '/%',
        '/a\\b',
        '//a',
        '/..;x/a',
        '*',
        'a',
        'http://a.example/a',
      ])
    : null;
  const query = chance(0.4)
    ? pick([
        '?',
        '?q=1',
        '?q=yes&r=1',
        '?x;q=1',
        '?q',
        '?r=1&q=a b'.replace(' ', '%20'),
        '?qq=1&q=yes&q=1',
        '?q=%5b',
        '?q-xay=2&q-x.y=1',
      ])
    : '';
  const header = (name: string) => ({ name, value: pick([...VALUES, 'yes', '1']) });
  const headers = NAMES.filter(() => chance(0.4)).map(header);
  if (chance(0.2)) headers.push(header('x-one'));
  if (chance(0.5)) headers.push({ name: 'x-client', value: 'kept' });
  if (chance(0.2))
    headers.push({
      name: 'origin',
      value: pick(['https://one.test', 'https://a.b.test:443', 'http://plain:80', 'http://evil']),
    });
  const method = pick(['GET', 'GET', 'POST', 'HEAD', 'OPTIONS', 'PUT']);
  if (method === 'OPTIONS' && chance(0.7))
    headers.push({ name: 'access-control-request-method', value: 'PUT' });
  if (method === 'POST' || method === 'PUT') headers.push({ name: 'content-length', value: '0' });
  const host = pick(HOSTS);
  return {
    gateway: 'ingress/fairlead',
    port: 80,
    transport: 'tcp',
    serverName: null,
    method,
    host: chance(0.2)
      ? `${host}:8080`
      : chance(0.1)
        ? host.toUpperCase()
        : chance(0.03)
          ? pick(['a_b', 'a.example.', 'x@a.example', 'a.example:x'])
          : host,
    target: (tricky ?? `/${segments.join('/')}`) + query,
    headers: headers.map((one) => ({ ...one, value: Buffer.from(one.value).toString('latin1') })),
    source: '127.0.0.1',
  };
}
