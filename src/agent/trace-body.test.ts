import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readTraceBody } from './trace-body.ts';

const TCP = { protocol: 'TCP', sequence: 5, relayPorts: [] };
const UDP = { protocol: 'UDP', id: '0000cafe', ports: [53] };
const POD = { name: 'default/client', addresses: ['10.0.0.1'] };
const SEND = { pod: 'default/client', destination: { ip: '10.96.0.1', port: 80 } };

describe('a request to observe', () => {
  const rows: readonly { readonly name: string; readonly body: object; readonly refused: RegExp | null }[] = [
    { name: 'a connection of another node', body: { packet: TCP }, refused: null },
    { name: 'a datagram', body: { packet: UDP }, refused: null },
    { name: 'that sends', body: { packet: TCP, pods: [POD], send: SEND }, refused: null },
    { name: 'that sends from the node', body: { packet: TCP, send: { ...SEND, pod: null } }, refused: null },
    { name: 'of others', body: { watched: { addresses: ['10.0.0.1'], ports: [30080] } }, refused: null },
    { name: 'of nothing', body: {}, refused: /packet/ },
    { name: 'another protocol', body: { packet: { ...TCP, protocol: 'SCTP' } }, refused: /packet/ },
    { name: 'sequence number 0', body: { packet: { ...TCP, sequence: 0 } }, refused: /packet/ },
    {
      name: 'a window past the last number',
      body: { packet: { ...TCP, sequence: 2 ** 32 - 1 } },
      refused: /packet/,
    },
    { name: 'a text of its own', body: { packet: { ...UDP, id: 'GET / HTTP' } }, refused: /packet/ },
    {
      name: 'a question of its own to a name server',
      body: { packet: { ...UDP, question: { name: 'example.com', type: 'A' } } },
      refused: /packet/,
    },
    { name: 'a port that is none', body: { packet: { ...UDP, ports: [70_000] } }, refused: /packet/ },
    {
      name: 'more ports than a filter has room for',
      body: { packet: { ...TCP, relayPorts: Array.from({ length: 41 }, (_, i) => i) } },
      refused: /packet/,
    },
    {
      name: 'a destination that is not an address',
      body: { packet: TCP, pods: [POD], send: { ...SEND, destination: { ip: 'web', port: 80 } } },
      refused: /send\.destination/,
    },
    { name: 'a sender that is not observed', body: { packet: TCP, send: SEND }, refused: /send\.pod/ },
    { name: 'pods that are none', body: { packet: TCP, pods: 'all' }, refused: /pods/ },
    {
      name: 'too many pods',
      body: { packet: TCP, pods: Array.from({ length: 17 }, () => POD) },
      refused: /more than 16/,
    },
    {
      name: 'a packet, and connections of others',
      body: { packet: TCP, watched: { addresses: [], ports: [] } },
      refused: /watched/,
    },
    {
      name: 'connections to no addresses',
      body: { watched: { addresses: ['web'], ports: [] } },
      refused: /watched/,
    },
  ];
  for (const { name, body, refused } of rows) {
    test(name, () => {
      const read = () => readTraceBody(body as Parameters<typeof readTraceBody>[0]);
      if (refused) assert.throws(read, { code: 'bad-request', message: refused });
      else assert.ok(read());
    });
  }
});
