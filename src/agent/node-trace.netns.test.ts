import assert from 'node:assert/strict';
import { once } from 'node:events';
import { closeSync, readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { createNetns, inNetns, listenTcpIn, openNetns, removeNetns } from '../kernel/netns.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { addLink, getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { readPacketLine } from '../trace/packet-line.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { createNodeTrace, type TraceLine } from './node-trace.ts';
import type { TraceBody } from './trace-body.ts';

/** A node, which is the network namespace of this process, with a pod behind a veth device. */

const POD = 'flt-trace-pod';
const NODE = { ipv4: '198.51.100.1', ipv6: '2001:db8:1::1' };
const ADDRESSES = { ipv4: '198.51.100.2', ipv6: '2001:db8:1::2' };
const PORT = 8080;
const configuration = { nodeName: 'n1', network: null } as unknown as AgentConfiguration;
const servers = [createServer(), createServer()];

before(async () => {
  createNetns(POD);
  using outer = openRouteSocket({ path: '/proc/self/ns/net' });
  using inside = openRouteSocket(POD);
  const fd = openNetns(POD);
  addLink(outer, { name: 'flt-tr', kind: 'veth', peer: { name: 'eth0', netns: { fd } } });
  closeSync(fd);
  for (const [socket, name, addresses] of [
    [outer, 'flt-tr', NODE],
    [inside, 'eth0', ADDRESSES],
  ] as const) {
    const device = getLink(socket, name).index;
    setLink(socket, device, { up: true });
    addAddress(socket, { device, address: addresses.ipv4, prefix: 24 });
    addAddress(socket, { device, address: addresses.ipv6, prefix: 64 });
  }
  for (const [i, address] of [NODE.ipv4, NODE.ipv6].entries()) {
    const listen = () => {
      try {
        return listenTcpIn(null, address, PORT);
      } catch {
        // An IPv6 address is tentative at first.
        return null;
      }
    };
    const server = servers[i];
    server?.listen({ fd: await eventually(listen) });
    if (server) await once(server, 'listening');
  }
});
after(() => {
  for (const server of servers) server.close();
  removeNetns(POD);
});

/** The response of an agent, as far as it uses it. */
function response() {
  const lines: TraceLine[] = [];
  const stream = Object.assign(new PassThrough(), { writeHead() {} });
  let rest = '';
  stream.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    lines.push(...parts.map((line) => JSON.parse(line) as TraceLine));
  });
  return { lines, stream, asResponse: stream as unknown as ServerResponse };
}

/** The sightings as "PLACE in|out DEVICE", with the kind of packet. */
function waysOf(lines: readonly TraceLine[]): string[] {
  const devices = new Map<number, string>();
  return lines.flatMap((line) => {
    if (line.type === 'device') devices.set(line.number, `${line.place.name} # ${line.device.text}`);
    if (line.type !== 'sighting') return [];
    const { tcp, icmp, payload } = readPacketLine(line.packet);
    const kind = tcp ? `flags ${tcp.flags}` : icmp ? icmp.text : payload.toString();
    return `${devices.get(line.number)?.replace('#', line.direction)}: ${kind}`;
  });
}

const pods = [{ name: 'shop/client', addresses: [ADDRESSES.ipv4, ADDRESSES.ipv6] }];
const body = (ip: string, port: number, changes: Partial<TraceBody> = {}): TraceBody => ({
  pods,
  packet: { protocol: 'TCP', sequence: 1_000_000, relayPorts: [] },
  watched: null,
  send: { pod: 'shop/client', destination: { ip, port } },
  ...changes,
});
const UDP = { packet: { protocol: 'UDP', id: '0000cafe', ports: [9] } } as const;
const OUT = ['pod shop/client out eth0', 'n1 in veth of shop/client'];
const IN = ['n1 out veth of shop/client', 'pod shop/client in eth0'];
const [SYN, SYN_ACK, RST] = ['flags 2', 'flags 18', 'flags 20'];

describe("the agent of the client's node", () => {
  const rows: readonly {
    readonly name: string;
    readonly body: TraceBody;
    /** The packet and its answer. */
    readonly packets: readonly [string | undefined, string | undefined];
    readonly result: object | string;
    readonly counter?: RegExp;
  }[] = (['ipv4', 'ipv6'] as const).flatMap((family) => [
    {
      name: `a connection, ${family}`,
      body: body(NODE[family], PORT),
      packets: [SYN, SYN_ACK] as const,
      result: 'connected',
    },
    {
      name: `a closed port, ${family}`,
      body: body(NODE[family], 9),
      packets: [SYN, RST] as const,
      result: { error: 'ECONNREFUSED' },
      counter: /^n1 Tcp OutRsts$/,
    },
    {
      name: `a datagram to a closed port, ${family}`,
      body: body(NODE[family], 9, UDP),
      packets: ['trace-0000cafe', 'port unreachable'] as const,
      result: { error: 'ECONNREFUSED' },
      counter: /^n1 Udp6? NoPorts$|^n1 Udp6NoPorts$/,
    },
  ]);
  for (const { name, body: asked, packets, result, counter } of rows) {
    test(name, async () => {
      const { lines, stream, asResponse } = response();
      const ended = createNodeTrace(configuration)(asked, asResponse);
      const wanted = [
        ...OUT.map((way) => `${way}: ${packets[0]}`),
        ...IN.map((way) => `${way}: ${packets[1]}`),
      ];
      const seen = () => waysOf(lines);
      const countersOf = () =>
        lines.flatMap((line) =>
          line.type === 'tick' ? line.counters.map((one) => `${one.place} ${one.name}`) : [],
        );
      try {
        await eventually(seen, (ways) => wanted.every((way) => ways.includes(way)));
        await eventually(() => lines.find((line) => line.type === 'result'));
        if (counter) await eventually(() => countersOf().some((one) => counter.test(one)));
      } finally {
        stream.destroy();
      }
      await ended;
      const told = lines.find((line) => line.type === 'result');
      assert.deepEqual(told?.type === 'result' && told.result, result);
      assert.equal(lines.findIndex(({ type }) => type === 'start') > 0, true, 'devices come first');
    });
  }
});

test('nothing of other packets is sent, and nothing is left after the reader has disconnected', async () => {
  const observers = () =>
    [null, POD].reduce((sum, netns) => {
      const read = () => readFileSync('/proc/thread-self/net/packet', 'utf8').trim().split('\n').length - 1;
      return sum + (netns === null ? read() : inNetns(netns, read));
    }, 0);
  const before = observers();
  const { lines, stream, asResponse } = response();
  // Another datagram passes, which is not the trace's.
  const other = response();
  const trace = createNodeTrace(configuration);
  const first = trace(body(NODE.ipv4, 9, { ...UDP, send: null }), asResponse);
  await eventually(() => lines.some(({ type }) => type === 'start'));
  assert.equal(observers(), before + 2);
  const second = trace(
    body(NODE.ipv4, 9, { packet: { protocol: 'UDP', id: '0000beef', ports: [9] } }),
    other.asResponse,
  );
  await eventually(() => waysOf(other.lines).length >= 4);
  const ticks = () => lines.filter(({ type }) => type === 'tick').length;
  const seen = ticks();
  await eventually(() => ticks() > seen + 1);
  assert.deepEqual(waysOf(lines), []);
  for (const one of [stream, other.stream]) one.destroy();
  await Promise.all([first, second]);
  assert.equal(observers(), before);
});

test('connections of others are selected by address and port; a fifth request is refused', async () => {
  const trace = createNodeTrace(configuration);
  const watching = [
    { addresses: [NODE.ipv4], ports: [] },
    { addresses: [], ports: [PORT] },
    { addresses: ['192.0.2.9'], ports: [9] },
  ].map((watched) => {
    const { lines, stream, asResponse } = response();
    const ended = trace({ pods, packet: null, watched, send: null }, asResponse);
    return { lines, stream, ended };
  });
  for (const { lines } of watching) await eventually(() => lines.some(({ type }) => type === 'start'));
  const client = response();
  const sent = trace(body(NODE.ipv4, PORT), client.asResponse);
  await assert.rejects(trace(body(NODE.ipv4, PORT), response().asResponse), { status: 429 });
  const [byAddress, byPort, none] = watching;
  for (const one of [byAddress, byPort])
    await eventually(() => waysOf(one?.lines ?? []).filter((way) => way.endsWith(SYN_ACK ?? '')).length >= 2);
  for (const one of [client, ...watching]) one.stream.destroy();
  await Promise.all([sent, ...watching.map(({ ended }) => ended)]);
  assert.deepEqual(waysOf(none?.lines ?? []), []);
});

test('a client that is not here is refused, and observes nothing', async () => {
  const gone = [{ name: 'shop/client', addresses: ['192.0.2.9'] }];
  const { asResponse } = response();
  await assert.rejects(
    createNodeTrace(configuration)(body(NODE.ipv4, PORT, { pods: gone }), asResponse),
    /no network namespace/,
  );
});
