import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Handlers } from '../kube/followed-objects.ts';
import type { EndpointSlice } from '../kube/types.ts';
import { silentLogger } from '../lib/log.ts';
import { openKnownApiServers } from './known-api-servers.ts';

interface SliceOptions {
  readonly name?: string;
  readonly namespace?: string;
  readonly service?: string;
  readonly port?: number;
  readonly unready?: true;
}

function slice(addresses: string[], options: SliceOptions = {}): EndpointSlice {
  const {
    name = 'kubernetes',
    namespace = 'default',
    service = 'kubernetes',
    port = 6443,
    unready,
  } = options;
  return {
    metadata: { name, namespace, labels: { 'kubernetes.io/service-name': service } },
    addressType: 'IPv4',
    ports: [
      { name: 'metrics', port: 9 },
      { name: 'https', port },
    ],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: !unready } })),
  };
}

type Change = ['add' | 'update' | 'delete', EndpointSlice];
const A = 'https://10.0.0.1:6443';
const B = 'https://10.0.0.2:6443';

const CASES: { name: string; file?: string; changes?: Change[]; urls: string[] }[] = [
  { name: 'a first start', urls: [] },
  { name: 'an earlier run', file: `{"servers": ["${A}"]}`, urls: [A] },
  { name: 'a damaged file', file: '{"servers": ["htt', urls: [] },
  { name: 'a file with other addresses', file: `{"servers": ["http://10.0.0.1", 7, "${A}"]}`, urls: [A] },
  { name: 'two servers', changes: [['add', slice(['10.0.0.2', '10.0.0.1'])]], urls: [A, B] },
  { name: 'IPv6', changes: [['add', slice(['fd00::1'])]], urls: ['https://[fd00::1]:6443'] },
  {
    name: 'another port',
    changes: [['add', slice(['10.0.0.1'], { port: 443 })]],
    urls: ['https://10.0.0.1:443'],
  },
  {
    name: 'slices of other Services and namespaces',
    changes: [
      ['add', slice(['10.0.0.1'], { service: 'web' })],
      ['add', slice(['10.0.0.1'], { namespace: 'other' })],
    ],
    urls: [],
  },
  {
    name: 'two slices, of which one goes',
    changes: [
      ['add', slice(['10.0.0.1'], { name: 'x' })],
      ['add', slice(['10.0.0.2'])],
      ['delete', slice(['10.0.0.1'], { name: 'x' })],
    ],
    urls: [B],
  },
  {
    name: 'a server is replaced',
    file: `{"servers": ["${A}"]}`,
    changes: [
      ['add', slice(['10.0.0.1'])],
      ['update', slice(['10.0.0.2'])],
    ],
    urls: [B],
  },
  {
    name: 'an endpoint that is not ready',
    changes: [['add', slice(['10.0.0.1'], { unready: true })]],
    urls: [],
  },
  { name: 'not an address', changes: [['add', slice(['api.example'])]], urls: [] },
  {
    name: 'all are gone: the last ones are kept',
    changes: [
      ['add', slice(['10.0.0.1'])],
      ['delete', slice(['10.0.0.1'])],
    ],
    urls: [A],
  },
];

for (const { name, file, changes = [], urls } of CASES) {
  test(`learned addresses of API servers, and those of the next run: ${name}`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'api-servers-'));
    try {
      if (file !== undefined) writeFileSync(join(folder, 'api-servers.json'), file);
      const known = openKnownApiServers(folder, silentLogger);
      known.follow({
        handle(handlers: Handlers<EndpointSlice>) {
          for (const [kind, one] of changes) {
            if (kind === 'add') handlers.onAdd?.(one);
            else if (kind === 'update') handlers.onUpdate?.(one, one);
            else handlers.onDelete?.(one);
          }
          return () => {};
        },
      });
      assert.deepEqual(known.urls(), urls);
      assert.deepEqual(openKnownApiServers(folder, silentLogger).urls(), urls);
      if (changes.length > 0 && urls.length > 0)
        assert.doesNotThrow(() => JSON.parse(readFileSync(join(folder, 'api-servers.json'), 'utf8')));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}
