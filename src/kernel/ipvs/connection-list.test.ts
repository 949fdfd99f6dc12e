import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseConnections } from './connection-list.ts';

// The lines are those of ip_vs_conn_seq_show (net/netfilter/ipvs/ip_vs_conn.c), with CONFIG_IP_VS_IPV6.
const TEXT = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0AF40003 A0D4 0A600A01 0050 0AF40102 1F90 ESTABLISHED     899
TCP 0AF40003 0000 0A600A01 0050 0AF40102 1F90 NONE            299
UDP fd00:0010:0244:0000:0000:0000:0000:0003 9C40 fd00:0010:0096:0000:0000:0000:0000:000a 0035 fd00:0010:0244:0001:0000:0000:0000:0002 0035 UDP             297
`;

test('connections, templates and IPv6 addresses are read', () => {
  const server = { address: '10.96.10.1', port: 80 };
  const endpoint = { address: '10.244.1.2', port: 8080 };
  assert.deepEqual(
    [...parseConnections(TEXT)],
    [
      { protocol: 'TCP', clientPort: 41_172, virtual: server, real: endpoint, state: 'ESTABLISHED' },
      { protocol: 'TCP', clientPort: 0, virtual: server, real: endpoint, state: 'NONE' },
      {
        protocol: 'UDP',
        clientPort: 40_000,
        virtual: { address: 'fd00:10:96::a', port: 53 },
        real: { address: 'fd00:10:244:1::2', port: 53 },
        state: 'UDP',
      },
    ],
  );
});

test('a kernel without IPVS has no connections', () => {
  assert.deepEqual([...parseConnections('')], []);
});
