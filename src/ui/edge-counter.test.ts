import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DnsLine, FlowLine } from '../flows/flow-line.ts';
import { type AddressBook, createEdgeCounter, MAX_SHOWN } from './edge-counter.ts';
import type { EdgeView } from './view.ts';

const OWNERS: Readonly<Record<string, string>> = {
  '10.244.0.2': 'default/client',
  '10.244.1.2': 'shop/web-1',
  '172.30.0.11': 'node/node-1',
};
const BOOK: AddressBook = {
  ownerOf: (ip) => OWNERS[ip] ?? null,
  nodeOf: (ip) => (ip.startsWith('10.244.0.') ? 'node-1' : ip.startsWith('10.244.1.') ? 'node-2' : null),
  serviceOf: (ip) => (ip === '10.96.0.10' ? 'kube-system/kube-dns' : null),
};

const flow = (extra: Partial<FlowLine> = {}): FlowLine => ({
  type: 'flow',
  time: '2030-01-01T00:00:00.000Z',
  kind: 'established',
  verdict: 'delivered',
  protocol: 'TCP',
  client: { ip: '10.244.0.2', port: 40000 },
  service: { ip: '10.96.0.60', port: 80, name: 'shop/web:http' },
  endpoint: { ip: '10.244.1.2', port: 8080 },
  proxy: null,
  micros: 400,
  reason: null,
  ...extra,
});
const lookup = (extra: Partial<DnsLine> = {}): DnsLine => ({
  type: 'dns',
  time: '2030-01-01T00:00:00.000Z',
  kind: 'dns',
  verdict: 'delivered',
  client: { ip: '10.244.0.2', port: 40000 },
  server: { ip: '10.96.0.10', port: 53 },
  name: 'web.shop',
  types: ['A'],
  answers: [],
  rcode: 'NOERROR',
  tried: [],
  questions: 1,
  micros: 1000,
  ...extra,
});
const WEB: EdgeView = {
  client: 'default/client',
  service: 'shop/web',
  endpoint: 'shop/web-1',
  verdict: 'delivered',
  count: 1,
  latencyMs: 0.4,
  reason: null,
};
const direct = { service: null, endpoint: { ip: '10.244.1.2', port: 8080 } } as const;

describe('edges of flows', () => {
  const rows: readonly {
    what: string;
    entries: readonly [node: string, entry: FlowLine | DnsLine][];
    edges: readonly EdgeView[];
    services?: Record<string, readonly [number, number]>;
  }[] = [
    {
      what: 'connections of one client to one endpoint are one edge with their mean latency',
      entries: [
        ['node-1', flow()],
        ['node-1', flow({ client: { ip: '10.244.0.2', port: 40001 }, micros: 800 })],
      ],
      edges: [{ ...WEB, count: 2, latencyMs: 0.6 }],
      services: { 'shop/web': [2, 0] },
    },
    {
      what: 'the end of a connection is not counted again',
      entries: [
        ['node-1', flow()],
        ['node-1', flow({ kind: 'closed', verdict: null })],
        ['node-1', flow({ kind: 'aborted', verdict: 'reset' })],
      ],
      edges: [WEB],
    },
    {
      what: 'a refused connection is an edge of its own, first, with its reason',
      entries: [
        ['node-1', flow()],
        [
          'node-1',
          flow({
            kind: 'rejected',
            verdict: 'rejected',
            endpoint: null,
            reason: 'no ready endpoints',
            micros: 9,
          }),
        ],
      ],
      edges: [
        { ...WEB, endpoint: null, verdict: 'rejected', latencyMs: null, reason: 'no ready endpoints' },
        WEB,
      ],
      services: { 'shop/web': [2, 1] },
    },
    {
      what: 'datagrams are sent, not answered',
      entries: [['node-1', flow({ kind: 'chosen', verdict: null, protocol: 'UDP' })]],
      edges: [{ ...WEB, verdict: 'sent', latencyMs: null }],
    },
    {
      what: 'a connection to a pod is counted by the node of its client only',
      entries: [
        ['node-1', flow(direct)],
        ['node-2', flow(direct)],
      ],
      edges: [{ ...WEB, service: null }],
      services: {},
    },
    {
      what: 'a lookup goes to the Service of the cluster DNS',
      entries: [
        ['node-1', lookup()],
        ['node-1', lookup({ verdict: 'not-found', rcode: 'NXDOMAIN' })],
      ],
      edges: [
        {
          ...WEB,
          service: 'kube-system/kube-dns',
          endpoint: null,
          verdict: 'not-found',
          latencyMs: 1,
          reason: 'lookup of web.shop: NXDOMAIN',
        },
        { ...WEB, service: 'kube-system/kube-dns', endpoint: null, latencyMs: 1 },
      ],
    },
    {
      what: 'an address without an owner is shown itself',
      entries: [
        ['node-1', flow({ client: { ip: '192.0.2.1', port: 5 }, endpoint: { ip: '192.0.2.2', port: 6 } })],
      ],
      edges: [{ ...WEB, client: '192.0.2.1', endpoint: '192.0.2.2' }],
    },
    {
      what: 'an address that no Service has now is shown with its port',
      entries: [['node-1', flow({ service: { ip: '10.96.0.99', port: 80, name: null } })]],
      edges: [{ ...WEB, service: '10.96.0.99:80' }],
    },
  ];
  for (const { what, entries, edges, services } of rows) {
    test(what, () => {
      const counter = createEdgeCounter(BOOK);
      for (const [node, entry] of entries) counter.add(entry, node);
      const tick = counter.take(1);
      assert.deepEqual(tick.edges, edges);
      assert.equal(
        tick.total,
        edges.reduce((sum, { count }) => sum + count, 0),
      );
      if (services) assert.deepEqual(tick.services, services);
      assert.deepEqual(counter.take(1).edges, [], 'the next tick begins empty');
    });
  }

  test('a tick has a limit, and counts what it leaves out', () => {
    const counter = createEdgeCounter(BOOK);
    const clients = 10_000;
    for (let i = 0; i < clients; i++) {
      const ip = `192.0.${i >> 8}.${i & 255}`;
      counter.add(
        flow({ client: { ip, port: 1 }, ...(i === 77 ? { kind: 'reset', verdict: 'rejected' } : {}) }),
        'node-1',
      );
    }
    const tick = counter.take(1);
    assert.equal(tick.edges.length, MAX_SHOWN);
    assert.equal(tick.edges[0]?.verdict, 'rejected', 'failures come first');
    assert.equal(tick.total, clients);
    assert.deepEqual(tick.services, { 'shop/web': [clients, 1] });
    assert.equal(tick.omittedEdges, clients - MAX_SHOWN);
  });
});
