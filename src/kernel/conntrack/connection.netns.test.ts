import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, Socket } from 'node:net';
import { test } from 'node:test';
import { eventually } from '../../lib/testing/eventually.ts';
import { createNetns, listenTcpIn, openTcpIn, removeNetns } from '../netns.ts';
import { ConntrackConnection } from './connection.ts';
import { FLOW_STATUS } from './flow.ts';

const PORT = 80;
const ENDPOINTS = [8080, 8081] as const;
const TCP = 6;
const FAMILIES = [
  { family: 'ipv4', ip: 'ip', service: '10.9.0.10', endpoint: '10.9.0.1', routed: '10.9.0.0/24' },
  { family: 'ipv6', ip: 'ip6', service: 'fd09::10', endpoint: 'fd09::1', routed: 'fd09::/64' },
] as const;
/** The first endpoint answers before the deletion, or not; the client then reads the name of its endpoint. */
const ROWS = [
  { name: 'an unanswered flow is deleted, and its next SYN is a new flow', answers: false, reads: '8081' },
  { name: 'a flow that was answered after it was read stays', answers: true, reads: '8080' },
] as const;

for (const { family, ip, service, endpoint, routed } of FAMILIES)
  for (const { name, answers, reads } of ROWS)
    test(`${family}: ${name}`, async () => {
      const netns = `flt-${randomBytes(3).toString('hex')}`;
      createNetns(netns);
      using _ = { [Symbol.dispose]: () => void removeNetns(netns) };
      const run = (...command: string[]) => execFileSync('ip', ['netns', 'exec', netns, ...command]);
      run('ip', 'link', 'set', 'lo', 'up');
      run('ip', 'addr', 'add', endpoint, 'dev', 'lo');
      run('ip', 'route', 'add', 'local', routed, 'dev', 'lo', 'src', endpoint);
      run('nft', 'add table inet test; add chain inet test input { type filter hook input priority 0; }');
      run('nft', 'add chain inet test output { type nat hook output priority -100; }');
      const drop = () => run('nft', `add rule inet test input tcp dport ${ENDPOINTS[0]} tcp flags syn drop`);
      const lead = (port: number) =>
        run(
          'nft',
          `flush chain inet test output; add rule inet test output ${ip} daddr ${service} tcp dport ${PORT} dnat ${ip} to ${ip === 'ip6' ? `[${endpoint}]` : endpoint}:${port}`,
        );
      const servers = ENDPOINTS.map((port) =>
        createServer((socket) =>
          socket.on('error', () => {}).on('data', () => socket.end(String(port))),
        ).listen({
          fd: listenTcpIn(netns, endpoint, port),
        }),
      );
      const client = new Socket({ fd: openTcpIn(netns, family) });
      try {
        using connection = new ConntrackConnection(netns);
        drop();
        lead(ENDPOINTS[0]);
        client.connect(PORT, service);
        const connected = once(client, 'connect');
        const [flow] = await eventually(() => {
          const flows = connection.list(family, { protocol: TCP, destination: service });
          return flows.length > 0 && flows;
        });
        assert.ok(flow);
        assert.equal(flow.status & FLOW_STATUS.seenReply, 0);
        if (answers) {
          run('nft', 'flush chain inet test input');
          await connected;
        }
        lead(ENDPOINTS[1]);
        const deleted = await connection.deleteUnanswered([flow]);
        assert.deepEqual(deleted, answers ? [] : [flow]);
        await connected;
        client.write('which endpoint?');
        const [text] = await once(client, 'data');
        assert.equal(String(text), reads);
      } finally {
        client.destroy();
        for (const server of servers) server.close();
      }
    });

test('few flows of both families are listed at once, an empty table without a walk, and on a thread the same', async () => {
  const netns = `flt-${randomBytes(3).toString('hex')}`;
  createNetns(netns);
  using _ = { [Symbol.dispose]: () => void removeNetns(netns) };
  const run = (...command: string[]) => execFileSync('ip', ['netns', 'exec', netns, ...command]);
  run('ip', 'link', 'set', 'lo', 'up');
  run('nft', 'add table inet test; add chain inet test input { type filter hook input priority 0; }');
  run('nft', 'add rule inet test input ct state new counter');
  using connection = new ConntrackConnection(netns);
  assert.deepEqual(connection.listFew(), []);
  assert.deepEqual(await connection.listFewAsync(), []);
  const sockets: Socket[] = [];
  const servers: Server[] = [];
  try {
    for (const [family, address] of [
      ['ipv4', '127.0.0.1'],
      ['ipv6', '::1'],
    ] as const) {
      const socket = new Socket({ fd: openTcpIn(netns, family) });
      servers.push(createServer().listen({ fd: listenTcpIn(netns, address, PORT) }));
      sockets.push(socket.connect(PORT, address));
      await once(socket, 'connect');
    }
    const each = () => (['ipv4', 'ipv6'] as const).flatMap((family) => connection.list(family));
    const idsOf = (flows: readonly { readonly id: number }[] | null) => flows?.map(({ id }) => id).sort();
    assert.equal(each().length, 2);
    assert.deepEqual(idsOf(connection.listFew()), idsOf(each()));
    assert.deepEqual(idsOf(await connection.listFewAsync()), idsOf(each()));
    const filter = [{ protocol: TCP }, { protocol: TCP, destination: '::1' }];
    assert.deepEqual(
      connection.listAny(['ipv6'], filter).map(({ original }) => original.destination),
      ['::1'],
    );
    assert.equal((await connection.listAnyAsync(['ipv4', 'ipv6'], filter)).length, 2);
  } finally {
    for (const socket of sockets) socket.destroy();
    for (const server of servers) server.close();
  }
});
