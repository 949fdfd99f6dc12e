import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import type { Mode } from '../dataplane/dataplane.ts';
import { addressBytes } from '../lib/address.ts';
import type { Frontend, ServiceMap } from '../service/model.ts';
import { frontendKey } from '../service/service-compiler.ts';
import { createServiceConnections } from './service-connections.ts';

/** An event of a connection to an address and port: nfgenmsg and the original tuple, as ctnetlink writes them. */
function event(address: string, port: number): Uint8Array {
  const bytes = addressBytes(address) ?? new Uint8Array();
  const isIPv4 = bytes.length === 4;
  const payload = Buffer.alloc(120);
  payload[0] = isIPv4 ? 2 : 10;
  payload.set(bytes, isIPv4 ? 24 : 36);
  payload.writeUInt16BE(port, isIPv4 ? 52 : 76);
  return payload;
}

const frontend = (name: string, family: 'ipv4' | 'ipv6', address: string | null, port: number) =>
  [
    frontendKey(family, address, 'TCP', port),
    { owner: { namespace: 'shop', name, portName: '', protocol: 'TCP' } } as Frontend,
  ] as const;
const FRONTENDS = [
  frontend('web', 'ipv4', '10.96.0.1', 80),
  frontend('web', 'ipv6', 'fd00:96::1', 80),
  frontend('web', 'ipv4', null, 30080),
  frontend('db', 'ipv4', '10.96.0.2', 5432),
];
const total = (service: string, namespace = 'shop') =>
  `fairlead_service_connections_total{namespace="${namespace}",service="${service}"}`;

async function counted(
  events: readonly (readonly [address: string, port: number, weight?: number])[],
  { mode = 'nftables', maxServices = 10 }: { readonly mode?: Mode; readonly maxServices?: number } = {},
) {
  const registry = new Registry();
  let frontends = new Map(FRONTENDS);
  const connections = createServiceConnections({
    registry,
    map: () => ({ frontends }) as unknown as ServiceMap,
    mode: () => mode,
    maxServices,
  });
  for (const [address, port, weight = 1] of events) connections.count(event(address, port), weight);
  const read = async () => {
    const text = await registry.getSingleMetricAsString('fairlead_service_connections_total');
    const lines = text.split('\n').filter((line) => !line.startsWith('#') && line !== '');
    return Object.fromEntries(
      lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]),
    );
  };
  return {
    first: await read(),
    after: async (kept: readonly string[]) => {
      frontends = new Map(FRONTENDS.filter(([, { owner }]) => kept.includes(owner.name)));
      return await read();
    },
  };
}

const ROWS: readonly (readonly [
  what: string,
  events: readonly (readonly [address: string, port: number, weight?: number])[],
  options: { readonly mode?: Mode; readonly maxServices?: number },
  totals: Readonly<Record<string, number>>,
])[] = [
  [
    'cluster IPs of both families and node ports of a Service are one series',
    [
      ['10.96.0.1', 80],
      ['fd00:96::1', 80],
      ['192.0.2.7', 30080],
      ['10.96.0.2', 5432],
    ],
    {},
    { [total('web')]: 3, [total('db')]: 1 },
  ],
  ['a sampled connection stands for several', [['10.96.0.1', 80, 4]], {}, { [total('web')]: 4 }],
  ['host ports are not Services', [['192.0.2.7', 8080]], {}, {}],
  [
    'Services beyond the bound are counted together',
    [
      ['10.96.0.1', 80],
      ['10.96.0.2', 5432],
      ['10.96.0.2', 5432],
    ],
    { maxServices: 1 },
    { [total('web')]: 1, [total('', '')]: 2 },
  ],
  ['eBPF mode translates at sockets, and counts none', [['10.96.0.1', 80]], { mode: 'ebpf' }, {}],
];
for (const [what, events, options, totals] of ROWS) {
  test(what, async () => assert.deepEqual((await counted(events, options)).first, totals));
}

test('the series of a Service that is gone ends', async () => {
  const { after } = await counted([
    ['10.96.0.1', 80],
    ['10.96.0.2', 5432],
  ]);
  assert.deepEqual(await after(['db']), { [total('db')]: 1 });
});
