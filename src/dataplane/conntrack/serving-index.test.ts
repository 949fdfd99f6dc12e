import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FLOW_STATUS, type Flow } from '../../kernel/conntrack/flow.ts';
import { compile } from '../../service/compile.ts';
import { webService, webSlice } from '../../service/testing/objects.ts';
import { testNode } from '../../service/testing/test-node.ts';
import { createServingIndex } from './serving-index.ts';

const OLD = '10.244.1.2';
const OTHER = '10.244.2.2';

/** A UDP flow to the Service that was translated to the endpoint OLD. */
const flow: Flow = {
  family: 'ipv4',
  original: {
    source: '10.244.1.9',
    destination: '10.96.0.1',
    protocol: 17,
    sourcePort: 4000,
    destinationPort: 53,
  },
  reply: { source: OLD, destination: '10.244.1.9', protocol: 17, sourcePort: 8080, destinationPort: 4000 },
  status: FLOW_STATUS.confirmed | FLOW_STATUS.destinationNat,
  mark: 0,
  zone: 0,
  id: 1,
  tcpState: null,
};

const rows: readonly [what: string, endpoints: string[], isStale: boolean][] = [
  ['its endpoint is ready', [OLD, OTHER], false],
  ['its endpoint terminates but still serves', [`${OLD} terminating`, OTHER], false],
  ['its endpoint terminates and no longer serves', [`${OLD} dead`, OTHER], true],
  ['its endpoint is not ready', [`${OLD} not-ready`, OTHER], true],
  ['its endpoint was removed', [OTHER], true],
  ['topology hints select others', [`${OLD} @node-2 zone=b`, `${OTHER} @node-1 zone=a`], false],
];
for (const [what, endpoints, expected] of rows)
  test(`a UDP flow ${expected ? 'ends' : 'stays'} if ${what}`, () => {
    const map = compile({
      services: [webService({ ports: [{ name: 'http', protocol: 'UDP', port: 53 }] })],
      slices: [webSlice(endpoints, { ports: [{ name: 'http', protocol: 'UDP', port: 8080 }] })],
      node: { ...testNode(), zone: 'a' },
    });
    const index = createServingIndex();
    index.reset(map);
    assert.equal(
      index.isStale(flow, () => false),
      expected,
    );
  });

/** A TCP connection to the Service without a reply yet. */
const opening = (endpoint: string, endpointPort: number): Flow => ({
  ...flow,
  original: { ...flow.original, protocol: 6, destinationPort: 80 },
  reply: { ...flow.reply, protocol: 6, source: endpoint, sourcePort: endpointPort },
  status: FLOW_STATUS.confirmed,
  tcpState: 1,
});
const OPENINGS: readonly [what: string, flow: Flow, isStale: boolean][] = [
  ['its first packet came before the rules', opening('10.96.0.1', 80), true],
  ['IPVS, which sets no status bit, translates it to an endpoint', opening(OLD, 8080), false],
];
for (const [what, opened, expected] of OPENINGS)
  test(`a connection that is being opened ${expected ? 'ends' : 'stays'} if ${what}`, () => {
    const index = createServingIndex();
    index.reset(compile({ services: [webService()], slices: [webSlice([OLD, OTHER])], node: testNode() }));
    assert.equal(
      index.isStale(opened, () => false),
      expected,
    );
  });
