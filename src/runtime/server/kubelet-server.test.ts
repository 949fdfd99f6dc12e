import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Client } from '../../kube/client.ts';
import type { Pod } from '../../kube/types.ts';
import { manualClock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { sendHostileRequests } from '../../lib/testing/hostile-http.ts';
import { createClientAuthorization } from './client-authorization.ts';
import { requestListeners } from './kubelet-server.ts';
import { createUsageReader } from './resource-usage.ts';
import type { ServedContainer, ServedPod } from './served-pod.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-kubelet-'));
const LOG = '2026-01-01T00:00:01.000000000+00:00 stdout F hello\n';
const clock = manualClock(1_750_000_000_000);
let server: Server;
let authorized = true;
let group = 'system:masters';
const peer = () => ({ authorized, getPeerCertificate: () => ({ subject: { CN: 'jane', O: group } }) });

/** The reviews that the API server was asked for: verb and subresource. */
const asked: string[] = [];
/** The rights that the API server knows. */
let rights: readonly string[] = [];
const client = {
  async request(_method: string, path: string, body: { spec: Review }) {
    if (path.endsWith('/tokenreviews'))
      return body.spec.token === 'right'
        ? { status: { authenticated: true, user: { username: 'metrics', groups: ['robots'] } } }
        : { status: {} };
    const { verb, subresource, name } = body.spec.resourceAttributes;
    const right = `${verb} ${subresource}`;
    asked.push(`${body.spec.user} ${right} ${name}`);
    return { status: { allowed: rights.includes(right) } };
  },
} as unknown as Client;

interface Review {
  readonly token: string;
  readonly user: string;
  readonly resourceAttributes: {
    readonly verb: string;
    readonly subresource: string;
    readonly name: string;
  };
}

const silent = { warn() {}, info() {}, debug() {}, error() {} } as unknown as Logger;

const container = {
  id: 'abc-main-0',
  isRunning: false,
  startedAtMs: null,
  logFolder: join(folder, 'logs'),
  logFile(previous: boolean) {
    if (previous) throw new FairleadError('there was none before', { op: 'read log', code: 'BadRequest' });
    return join(folder, 'logs', '0.log');
  },
} as unknown as ServedContainer;
const pod: ServedPod = {
  pod: { metadata: { namespace: 'ns', name: 'web', uid: 'abc' }, spec: { containers: [] } } as Pod,
  pausePid: null,
  cgroup: 'none',
  containerNames: ['main'],
  container: (name) => (name === 'main' ? container : undefined),
};

before(async () => {
  mkdirSync(join(folder, 'logs'));
  writeFileSync(join(folder, 'logs', '0.log'), LOG);
  const listeners = requestListeners({
    options: {
      client,
      nodeName: 'node-1',
      nodeAddresses: ['127.0.0.1'],
      stateDir: folder,
      cgroupParent: '/none',
      clusterDns: ['10.96.0.10'],
      clusterDomain: 'cluster.local',
      server: { port: 10250, cert: '', key: '', clientCa: '' },
      logger: silent,
      clock,
      signal: new AbortController().signal,
      version: 'v1.36.0',
      flags: { v: '2' },
      startedAt: 0,
    },
    pods: {
      list: () => [pod],
      find: (namespace, name) => (namespace === 'ns' && name === 'web' ? pod : undefined),
    },
    usage: createUsageReader(null, clock),
    authorization: createClientAuthorization(client, 'node-1', clock),
  });
  server = createServer((request, response) => {
    Object.assign(request.socket, peer());
    listeners.request(request, response);
  });
  server.on('upgrade', (request, socket, head) => {
    Object.assign(socket, peer());
    listeners.upgrade(request, socket, head);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
after(() => {
  server.closeAllConnections();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Sends bytes and reads until the server closes. */
function exchange(bytes: string): Promise<string> {
  const { port } = server.address() as AddressInfo;
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    let text = '';
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(text));
    socket.write(bytes);
  });
}

const get = (path: string, headers: readonly string[] = []) =>
  exchange([`GET ${path} HTTP/1.1`, 'host: node', 'connection: close', ...headers, '', ''].join('\r\n'));
const upgrade = (path: string, headers: readonly string[]) =>
  exchange([`GET ${path} HTTP/1.1`, 'host: node', 'connection: upgrade', ...headers, '', ''].join('\r\n'));
const WEBSOCKET = [
  'upgrade: websocket',
  'sec-websocket-version: 13',
  'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
];

describe('requests', () => {
  const rows: readonly (readonly [path: string, code: number, body?: RegExp])[] = [
    ['/healthz', 200, /ok$/],
    ['/containerLogs/ns/web/main', 200, /hello/],
    ['/containerLogs/ns/web/main?tailLines=0', 200],
    ['/containerLogs/ns/web/main?previous=true', 400, /none before/],
    ['/containerLogs/ns/web/main?tailLines=-1', 422, /tailLines/],
    ['/containerLogs/ns/web/main?limitBytes=0', 422, /limitBytes/],
    ['/containerLogs/ns/web/main?sinceTime=yesterday', 422, /sinceTime/],
    ['/containerLogs/ns/web/main?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z', 422, /at most one/],
    ['/containerLogs/ns/web/other', 404, /not on this node/],
    ['/containerLogs/ns/other/main', 404],
    ['/containerLogs', 404],
    ['/containerLogs/%25/x/y', 404],
    ['/containerLogs/%/x/y', 400, /malformed path/],
    ['/%E0%A4%A', 400],
    ['//', 400],
    ['/__proto__', 404],
    ['/constructor/x', 404],
    ['/', 404],
    ['/pods', 200, /"kind":"PodList".*"name":"web"/],
    ['/stats/summary', 200, /"nodeName":"node-1".*"podRef":\{"name":"web"/],
    ['/stats/other', 404],
    ['/metrics', 200, /kubelet_running_pods 0/],
    ['/metrics/resource', 200, /node_cpu_usage_seconds_total \d/],
    ['/metrics/cadvisor', 200, /machine_memory_bytes \d/],
    ['/configz', 200, /"clusterDomain":"cluster.local"/],
    ['/statusz', 200, /^Paths {2}\/configz \/containerLogs \/flagz \/healthz /m],
    ['/flagz', 200, /^v 2$/m],
    ['/logs/', 200, /href="pods\/"/],
    ['/logs', 301],
    ['/logs/pods/', 200, /ns_web_abc/],
    ['/logs/pods/ns_web_abc/main/', 200, /0\.log/],
    ['/logs/pods/ns_web_abc/main/0.log', 200, /hello/],
    ['/logs/pods/ns_web_abc/main/..%2f..%2fsecret', 404],
    ['/logs/..%2f..%2fetc/passwd', 404],
    ['/exec/ns/web/main', 404],
  ];
  for (const [path, code, body] of rows) {
    test(`${path} answers ${code}`, async () => {
      const answer = await get(path);
      assert.match(answer, new RegExp(`^HTTP/1.1 ${code} `));
      if (body) assert.match(answer, body);
    });
  }
  test('only GET and HEAD are supported', async () => {
    assert.match(
      await exchange('DELETE /pods HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n'),
      /^HTTP\/1.1 405 /,
    );
  });
  test('requests without a certificate are refused', async () => {
    authorized = false;
    try {
      assert.match(await get('/healthz'), /^HTTP\/1.1 401 /);
      assert.match(await upgrade('/exec/ns/web/main?command=x', WEBSOCKET), /^HTTP\/1.1 401 /);
    } finally {
      authorized = true;
    }
  });
  test('other certificates than those of administrators get 403 without a right', async () => {
    group = 'readers';
    try {
      assert.match(await get('/configz'), /^HTTP\/1.1 403 /);
      assert.match(await upgrade('/exec/ns/web/main?command=x', WEBSOCKET), /^HTTP\/1.1 403 /);
    } finally {
      group = 'system:masters';
    }
  });
});

describe('rights of clients, which the API server reviews', () => {
  const rows: readonly {
    path: string;
    rights: string[];
    code: number;
    asked: string[];
    isUpgrade?: true;
  }[] = [
    { path: '/metrics/resource', rights: ['get metrics'], code: 200, asked: ['get metrics'] },
    { path: '/metrics', rights: ['get stats'], code: 403, asked: ['get metrics'] },
    { path: '/m%65trics', rights: ['get metrics'], code: 200, asked: ['get metrics'] },
    { path: '/stats/summary', rights: ['get stats'], code: 200, asked: ['get stats'] },
    { path: '/logs/', rights: ['get log'], code: 200, asked: ['get log'] },
    { path: '/pods', rights: ['get pods'], code: 200, asked: ['get pods'] },
    { path: '/pods', rights: ['get proxy'], code: 200, asked: ['get pods', 'get proxy'] },
    { path: '/healthz', rights: [], code: 403, asked: ['get healthz', 'get proxy'] },
    { path: '/configz', rights: ['get configz'], code: 200, asked: ['get configz'] },
    { path: '/statusz', rights: ['get statusz'], code: 200, asked: ['get statusz'] },
    { path: '/statusz', rights: ['get configz'], code: 403, asked: ['get statusz', 'get proxy'] },
    { path: '/flagz', rights: ['get configz'], code: 200, asked: ['get configz'] },
    { path: '/containerLogs/ns/web/main', rights: ['get log'], code: 403, asked: ['get proxy'] },
    { path: '/containerLogs/ns/web/main', rights: ['get proxy'], code: 200, asked: ['get proxy'] },
    {
      path: '/exec/ns/web/main?command=ls',
      rights: ['get proxy'],
      code: 403,
      asked: ['create proxy'],
      isUpgrade: true,
    },
    {
      path: '/exec/ns/web/main?command=ls',
      rights: ['create proxy'],
      code: 500,
      asked: ['create proxy'],
      isUpgrade: true,
    },
  ];
  for (const [index, row] of rows.entries()) {
    test(`${row.path} with ${row.rights.join() || 'none'}: ${row.code}`, async () => {
      // Another group for each row: answers are remembered by user.
      group = `row-${index}`;
      rights = row.rights;
      asked.length = 0;
      try {
        const answer = await (row.isUpgrade ? upgrade(row.path, WEBSOCKET) : get(row.path));
        assert.match(answer, new RegExp(`^HTTP/1.1 ${row.code} `));
        assert.deepEqual(
          asked,
          row.asked.map((right) => `jane ${right} node-1`),
        );
      } finally {
        group = 'system:masters';
      }
    });
  }

  for (const { token, code } of [
    { token: 'right', code: 200 },
    { token: 'wrong', code: 401 },
    { token: 'x'.repeat(15_000), code: 401 },
  ]) {
    test(`a client without a certificate, with the token ${token.slice(0, 10)}: ${code}`, async () => {
      authorized = false;
      rights = ['get metrics'];
      try {
        const answer = await get('/metrics/resource', [`authorization: Bearer ${token}`]);
        assert.match(answer, new RegExp(`^HTTP/1.1 ${code} `));
      } finally {
        authorized = true;
      }
    });
  }

  test('an answer is remembered for 30 seconds if it is a refusal, for 5 minutes if not', async () => {
    group = 'remembered';
    const code = async () => Number((await get('/metrics')).slice(9, 12));
    try {
      rights = [];
      assert.equal(await code(), 403);
      rights = ['get metrics'];
      clock.advance(29_000);
      assert.equal(await code(), 403);
      clock.advance(2000);
      assert.equal(await code(), 200);
      rights = [];
      clock.advance(299_000);
      assert.equal(await code(), 200);
      clock.advance(2000);
      assert.equal(await code(), 403);
    } finally {
      group = 'system:masters';
    }
  });
});

describe('upgrades', () => {
  const rows: readonly (readonly [path: string, code: number])[] = [
    ['/exec/ns/web/main?command=ls', 500],
    ['/exec/%/web/main?command=ls', 400],
    ['/exec/ns/other/main?command=ls', 404],
    ['/attach/ns/web/none', 500],
    ['/portForward/ns/web', 500],
    ['/containerLogs/ns/web/main', 404],
    ['//', 400],
  ];
  for (const [path, code] of rows) {
    test(`${path} answers ${code}`, async () => {
      assert.match(await upgrade(path, WEBSOCKET), new RegExp(`^HTTP/1.1 ${code} `));
      assert.match(await upgrade(path, ['upgrade: SPDY/3.1']), new RegExp(`^HTTP/1.1 ${code} `));
    });
  }
});

test('random paths, headers and upgrades affect only themselves', async () => {
  const { port } = server.address() as AddressInfo;
  await sendHostileRequests(() => connect({ port, host: '127.0.0.1' }), {
    words: [
      ...['containerLogs', 'exec', 'attach', 'portForward', 'logs', 'pods', 'stats', 'metrics'],
      ...['ns', 'web', 'main', 'command=', 'tailLines=-1', 'sinceTime=x', 'follow=true'],
    ],
    rounds: 600,
  });
  assert.match(await get('/healthz'), /^HTTP\/1.1 200 /);
});
