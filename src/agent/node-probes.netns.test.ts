import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { createNetns, listenTcpIn, removeNetns } from '../kernel/netns.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { systemClock } from '../lib/clock.ts';
import { answerFact } from './node-facts.ts';
import { createNodeProber, type ProbeBody } from './node-probes.ts';

/** A node with one pod, whose network namespace only its address identifies. */

const POD = 'flt-probe-pod';
const ADDRESS = '192.0.2.77';
const servers = [createServer(), createServer()];
let ports: number[] = [];

before(async () => {
  createNetns(POD);
  using inside = openRouteSocket(POD);
  const lo = getLink(inside, 'lo').index;
  setLink(inside, lo, { up: true });
  addAddress(inside, { device: lo, address: ADDRESS, prefix: 32 });
  const bodies = ['hello from server-1 (you are 192.0.2.77)\n', 'secret=1\n'];
  for (const [i, server] of servers.entries()) {
    server.on('connection', (socket) => socket.end(`HTTP/1.0 200 OK\r\n\r\n${bodies[i]}`));
    server.listen({ fd: listenTcpIn(POD, ADDRESS, 8080 + i) });
    await once(server, 'listening');
  }
  ports = servers.map((server) => (server.address() as AddressInfo).port);
});
after(() => {
  for (const server of servers) server.close();
  removeNetns(POD);
});

describe('a probe', () => {
  const rows: readonly {
    readonly name: string;
    readonly body: () => Partial<ProbeBody>;
    readonly outcome: object | RegExp;
  }[] = [
    {
      name: 'from a pod to a server of the check',
      body: () => ({ pod: [ADDRESS], port: ports[0] ?? 0 }),
      outcome: { kind: 'answer', server: 'server-1', message: 'hello', client: ADDRESS },
    },
    {
      name: 'to another server, whose answer is kept',
      body: () => ({ pod: [ADDRESS], port: ports[1] ?? 0 }),
      outcome: { kind: 'failed', error: 'answered by a server that is not of the check' },
    },
    { name: 'to a closed port', body: () => ({ pod: [ADDRESS], port: 9 }), outcome: { kind: 'refused' } },
    {
      name: 'from a pod that is not here',
      body: () => ({ pod: ['192.0.2.78'], port: 9 }),
      outcome: /no network namespace/,
    },
    {
      name: 'of another family',
      body: () => ({ family: 'ipv6', port: 9 }),
      outcome: /do not describe a packet/,
    },
    {
      name: 'of no protocol',
      body: () => ({ protocol: 'SCTP' as 'TCP', port: 9 }),
      outcome: /do not describe a packet/,
    },
  ];
  const probe = createNodeProber(systemClock);
  for (const { name, body, outcome } of rows) {
    test(name, async () => {
      const sent = probe({ protocol: 'TCP', family: 'ipv4', address: ADDRESS, patience: 5000, ...body() });
      if (outcome instanceof RegExp) await assert.rejects(sent, outcome);
      else assert.deepEqual(await sent, outcome);
    });
  }
});

test('a fact of a pod is read in the namespace with its address; its name servers are those of the cluster', async () => {
  const configuration = { nodeName: 'n1', clusterDomain: 'cluster.local', dns: null };
  const place = { kind: 'pod', node: 'n1', uid: 'u', name: 'shop/web' } as const;
  const pod = {
    addresses: [ADDRESS],
    nameServers: 'cluster',
    searches: ['corp.example'],
    options: ['ndots:2'],
    hosts: ['192.0.2.5 db'],
  } as const;
  const services = {
    list: () => [
      { metadata: { namespace: 'kube-system', name: 'kube-dns' }, spec: { clusterIPs: ['192.0.2.10'] } },
    ],
  };
  const ask = (request: object) =>
    answerFact(configuration as never, services as never, { request, pod } as never);
  const sockets = await ask({ kind: 'sockets', place, protocol: 'TCP' });
  assert.deepEqual(
    sockets.kind === 'sockets' && sockets.sockets.map(({ address, port }) => `${address}:${port}`).sort(),
    ['192.0.2.77:8080', '192.0.2.77:8081'],
  );
  const names = await ask({ kind: 'names', place, name: 'db', family: null });
  assert.deepEqual(names.kind === 'names' && { ...names.log }, {
    servers: ['192.0.2.10'],
    search: ['shop.svc.cluster.local', 'svc.cluster.local', 'cluster.local', 'corp.example'],
    ndots: 2,
    fromHosts: true,
    tries: [],
    addresses: ['192.0.2.5'],
  });
  const elsewhere = await ask({ kind: 'sockets', place: { ...place, node: 'n2' }, protocol: 'TCP' });
  assert.match(elsewhere.kind === 'failed' ? elsewhere.reason : '', /is not on node n1/);
});
