import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { DnsLine, FlowsEntry } from './flow-line.ts';
import { flowsQuery, readFlowsRequest, streamFlows } from './flow-stream.ts';
import type { FlowWatch } from './flow-watch.ts';

const lookup = (name: string, seconds: number): DnsLine => ({
  ...{
    type: 'dns',
    kind: 'dns',
    verdict: 'delivered',
    types: ['A'],
    answers: [],
    rcode: 'NOERROR',
    tried: [],
  },
  ...{ time: new Date(seconds * 1000).toISOString(), name, questions: 1, micros: 1 },
  ...{ client: { ip: '10.244.1.2', port: 4000 }, server: { ip: '10.96.0.10', port: 53 } },
});
const entries: FlowsEntry[] = [lookup('one', 10), { type: 'notice', text: 'gap' }, lookup('two', 20)];

describe('a stream of flows', () => {
  let since: number | null = 5000;
  const watch: FlowWatch = {
    watch(onEntry) {
      onEntry(lookup('new', 30));
      return { ready: Promise.resolve(), close() {} };
    },
    recorded: () => ({ since, entries: since === null ? [] : entries }),
    modeChanged() {},
    close() {},
  };
  const server = createServer((request, response) => {
    const query = new URL(request.url ?? '', 'http://agent').searchParams;
    streamFlows(response, watch, readFlowsRequest(query));
    // The reader of new flows would wait for more.
    setImmediate(() => response.end());
  });
  before(() => new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve)));
  after(() => void server.close());

  const rows: {
    name: string;
    recordedSince?: number | null;
    request: Parameters<typeof flowsQuery>[0];
    lines: readonly (string | RegExp)[];
  }[] = [
    { name: 'new flows only', request: { since: null, follow: true }, lines: ['new'] },
    { name: 'all recorded ones', request: { since: 6000, follow: false }, lines: ['one', 'gap', 'two'] },
    { name: 'the latest recorded ones', request: { since: 15_000, follow: false }, lines: ['two'] },
    { name: 'recorded ones and new ones', request: { since: 15_000, follow: true }, lines: ['two', 'new'] },
    {
      name: 'a time before the record began',
      request: { since: 1000, follow: false },
      lines: [/recorded since 1970-01-01T00:00:05/, 'one', 'gap', 'two'],
    },
    {
      name: 'no record',
      recordedSince: null,
      request: { since: 1000, follow: false },
      lines: [/nothing was recorded/],
    },
  ];
  for (const { name, recordedSince = 5000, request, lines } of rows) {
    test(name, async () => {
      since = recordedSince;
      const { port } = server.address() as AddressInfo;
      const response = await fetch(`http://127.0.0.1:${port}/flows?${flowsQuery(request)}`);
      const found = (await response.text())
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as FlowsEntry)
        .map((entry) => (entry.type === 'notice' ? entry.text : entry.type === 'dns' ? entry.name : ''));
      assert.equal(found.length, lines.length, found.join());
      for (const [i, line] of lines.entries()) {
        if (typeof line === 'string') assert.equal(found[i], line);
        else assert.match(found[i] ?? '', line);
      }
    });
  }
});
