import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DnsLine, FlowLine } from './flow-line.ts';
import { flowText } from './flow-text.ts';

const TIME = '2026-05-04T12:28:19.901Z';
const NAMES = new Map([
  ['10.244.0.3', 'default/client'],
  ['10.244.1.2', 'default/hello-tgldbct2xx-whj9b'],
  ['10.244.2.2', 'warehouse/postgres-replica-0'],
]);
const answered: FlowLine = {
  ...{ type: 'flow', time: TIME, kind: 'established', verdict: 'delivered', protocol: 'TCP', reason: null },
  client: { ip: '10.244.0.3', port: 57530 },
  service: { ip: '10.96.135.164', port: 80, name: 'default/hello:http' },
  endpoint: { ip: '10.244.1.2', port: 8080 },
  ...{ proxy: null, micros: 340 },
};
const dropped: FlowLine = {
  ...{ ...answered, kind: 'dropped', verdict: 'dropped', service: null, micros: 2_500_000 },
  reason: 'NetworkPolicy default/guard: no ingress rule of pod default/hello-tgldbct2xx-whj9b allows it',
};
const rejected: FlowLine = {
  ...{ ...answered, kind: 'rejected', verdict: 'rejected', endpoint: null, micros: 0 },
  client: { ip: '10.244.0.3', port: 0 },
  reason: 'the Service has no ready endpoints',
};
const lookup: DnsLine = {
  ...{
    type: 'dns',
    kind: 'dns',
    time: TIME,
    verdict: 'delivered',
    rcode: 'NOERROR',
    questions: 4,
    micros: 4100,
  },
  client: { ip: '10.244.0.3', port: 50489 },
  server: { ip: '10.96.0.10', port: 53 },
  name: 'www.example.com',
  types: ['A', 'AAAA'],
  answers: ['192.0.2.7'],
  tried: ['www.example.com.default.svc.cluster.local', 'www.example.com.svc.cluster.local'],
};

describe('a line of flows', () => {
  const rows: { name: string; entry: FlowLine | DnsLine; columns: number | null; text: string }[] = [
    {
      name: 'an answer in 80 columns',
      entry: answered,
      columns: 80,
      text: '12:28:19 delivered   client → hello:80 → hello-tgldbct2xx-whj9b 0.34 ms',
    },
    {
      name: 'an address that the client got for a name',
      entry: {
        ...{ ...answered, service: null, asked: 'api.example.com' },
        endpoint: { ip: '198.51.100.7', port: 443 },
      },
      columns: 80,
      text: '12:28:19 delivered   client → api.example.com:443 0.34 ms',
    },
    {
      name: 'an address that the client got for a name, in a wide terminal',
      entry: {
        ...{ ...answered, service: null, asked: 'api.example.com' },
        endpoint: { ip: '198.51.100.7', port: 443 },
      },
      columns: 200,
      text: '12:28:19.901  node-3  established  TCP  default/client 10.244.0.3:57530 → api.example.com 198.51.100.7:443  0.34 ms',
    },
    {
      name: 'an answer in a wide terminal',
      entry: answered,
      columns: 200,
      text: '12:28:19.901  node-3  established  TCP  default/client 10.244.0.3:57530 → default/hello:http 10.96.135.164:80 → default/hello-tgldbct2xx-whj9b 10.244.1.2:8080  0.34 ms',
    },
    {
      name: 'a client that was refused before it had a port',
      entry: rejected,
      columns: 200,
      text: '12:28:19.901  node-3  rejected     TCP  default/client 10.244.0.3 → default/hello:http 10.96.135.164:80  (the Service has no ready endpoints)',
    },
    {
      name: 'a dropped connection in 80 columns: the reason is cut',
      entry: dropped,
      columns: 80,
      text: '12:28:19 dropped     client → hello-tgldbct2… (NetworkPolicy default/guard: no …',
    },
    {
      name: 'a dropped connection in a file',
      entry: dropped,
      columns: null,
      text: '12:28:19.901  node-3  dropped      TCP  default/client 10.244.0.3:57530 → default/hello-tgldbct2xx-whj9b 10.244.1.2:8080  2500 ms  (NetworkPolicy default/guard: no ingress rule of pod default/hello-tgldbct2xx-whj9b allows it)',
    },
    {
      name: 'a lookup in 80 columns',
      entry: lookup,
      columns: 80,
      text: '12:28:19 delivered   client asks www.example.com: 192.0.2.7 after 2 oth… 4.10 ms',
    },
    {
      name: 'a lookup of a long name in 80 columns: the end of the name is cut',
      entry: { ...lookup, name: 'hello.default.svc.cluster.local', answers: ['10.96.135.164'], tried: [] },
      columns: 80,
      text: '12:28:19 delivered   client asks hello.default.svc.clust…: 10.96.135.164 4.10 ms',
    },
    {
      name: 'a lookup that was not answered',
      entry: { ...lookup, verdict: 'no-answer', rcode: null, answers: [], tried: [] },
      columns: 80,
      text: '12:28:19 no-answer   client asks www.example.com: no answer 4.10 ms',
    },
    {
      name: 'long names in 80 columns',
      entry: { ...answered, endpoint: { ip: '10.244.2.2', port: 5432 } },
      columns: 60,
      text: '12:28:19 delivered   client → hello:80 → warehouse/… 0.34 ms',
    },
  ];
  for (const { name, entry, columns, text } of rows) {
    test(name, () => {
      const line = flowText({ node: 'node-3', entry, nameOf: (ip) => NAMES.get(ip) ?? null }, columns);
      assert.equal(line, text);
      assert.ok(columns === null || columns > 140 || line.length <= columns, line);
    });
  }
});
