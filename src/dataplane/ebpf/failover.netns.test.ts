import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { listenTcpIn } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { ServiceMap } from '../../service/model.ts';
import type { FlowEvent } from '../flow-event.ts';
import { delayArrivals } from '../testing/delayed-packets.ts';
import { openEbpf } from '../testing/open-ebpf.ts';
import { changeBetween, endpoint, frontend, serviceMap } from '../testing/service-map.ts';
import { createTopology, type Place, type Topology } from '../testing/topology.ts';
import type { EbpfDataplane } from './ebpf.ts';
import { PENDING_SET } from './generated/layout.ts';
import { closeMaps, indexKey, openMaps } from './maps.ts';
import { linkPin, removePins } from './pins.ts';
import { type Asked, type Client, makeTestGroup, removeTestGroup, startClient } from './testing/client.ts';
import { attachSockOps, RTT_CALLBACK } from './testing/group-programs.ts';
import { holdAnswers } from './testing/held-answers.ts';
import { createServices } from './testing/separate-services.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const CLIENTS = ['pod3', 'node'] as const;
const TARGET = 8080;
/** A port without a listener. */
const CLOSED = 8089;
/** BPF_SOCK_OPS_RTO_CB_FLAG */
const RTO_CALLBACK = 1;
/** Longer than until the client's second SYN, shorter than until its third. */
const LATE_MS = 150;
const LOAD = { times: 120, perSecond: 200, timeoutMs: 20_000 };

describe('failover in eBPF mode', () => {
  let topology: Topology;
  let dataplane: EbpfDataplane;
  let group: string;
  let pinPath: string;
  const clients = new Map<Place, Client>();
  const outcomes: { kind: string; endpoint: string }[] = [];

  const open = (attachment?: 'clsact') =>
    openEbpf({
      ...(attachment ? { attachment } : {}),
      families: FAMILIES,
      netns: topology.namespace('node'),
      cgroup: group,
      pinPath,
      onOutcome: ({ kind, endpoint: { ip, port } }) => outcomes.push({ kind, endpoint: `${ip} ${port}` }),
    });

  before(async () => {
    topology = createTopology();
    group = makeTestGroup();
    pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
    for (const place of ['pod1', 'pod2', 'far'] as const) await topology.serve(place, TARGET);
    await topology.serve('pod2', TARGET + 1);
    for (const place of CLIENTS) clients.set(place, await startClient(topology.namespace(place), group));
    dataplane = open();
  });
  after(async () => {
    try {
      await dataplane?.remove();
      await dataplane?.close();
    } finally {
      for (const client of clients.values()) await client.close();
    }
    if (pinPath) removePins(pinPath);
    topology?.close();
    if (group) await removeTestGroup(group);
  });

  const service = createServices();

  const at = (place: Place, family: IPFamily): readonly [string, number] => [
    topology.address(place, family),
    TARGET,
  ];
  /** Returns an address that is routed to the pods' side, without a host. */
  const unused = (family: IPFamily): readonly [string, number] => [
    family === 'ipv4' ? '10.244.2.99' : 'fd00:244:2::99',
    TARGET,
  ];

  function client(place: (typeof CLIENTS)[number]): Client {
    const found = clients.get(place);
    assert.ok(found);
    return found;
  }

  /** Asserts that all attempts succeeded. Without failover a socket would retry the same endpoint. */
  function expectAll({ answers = {}, times = [] }: Asked, from: string): void {
    const bad = Object.entries(answers).filter(([answer]) => !/^(pod1|pod2|far) /.test(answer));
    assert.deepEqual(bad, [], from);
    assert.equal(times.length, LOAD.times);
  }

  for (const family of FAMILIES) {
    for (const from of CLIENTS) {
      test(`${family}, ${from}: one of four endpoints does not answer: every connection succeeds`, async () => {
        // Packets to the endpoint are dropped silently.
        topology.configure('far', `route add blackhole ${unused(family)[0]}`);
        topology.configure(
          'node',
          `route add ${unused(family)[0]} via ${family === 'ipv4' ? '192.0.2.30' : 'fd00:2::30'} dev eth1`,
        );
        try {
          const made = service(family, 'TCP', [
            at('pod1', family),
            at('pod2', family),
            at('far', family),
            unused(family),
          ]);
          await dataplane.sync(serviceMap([made]));
          outcomes.length = 0;
          expectAll(await client(from).ask('tcp-storm', made.address ?? '', 80, LOAD), from);
          assert.ok(
            outcomes.some((one) => one.kind === 'timeout' && one.endpoint === unused(family).join(' ')),
          );
        } finally {
          topology.configure('far', `route del blackhole ${unused(family)[0]}`);
          topology.configure('node', `route del ${unused(family)[0]}`);
        }
      });
      test(`${family}, ${from}: one of four endpoints is reported as unreachable by ICMP: every connection succeeds`, async () => {
        // Not the address of the previous test, which is still ejected.
        const address = unused(family)[0].replace(/99$/, from === 'node' ? '97' : '98');
        const port = TARGET;
        // Without a limit every connection gets its ICMP error.
        topology.run('far', 'sysctl', '-qw', 'net.ipv4.icmp_ratelimit=0', 'net.ipv6.icmp.ratelimit=0');
        topology.run('far', 'sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1');
        topology.configure('far', `route add unreachable ${address}`);
        topology.configure(
          'node',
          `route add ${address} via ${family === 'ipv4' ? '192.0.2.30' : 'fd00:2::30'} dev eth1`,
        );
        try {
          const made = service(family, 'TCP', [
            at('pod1', family),
            at('pod2', family),
            at('far', family),
            [address, port],
          ]);
          await dataplane.sync(serviceMap([made]));
          outcomes.length = 0;
          expectAll(await client(from).ask('tcp-storm', made.address ?? '', 80, LOAD), from);
          assert.ok(outcomes.some((one) => one.endpoint === `${address} ${port}`));
        } finally {
          topology.configure('far', `route del unreachable ${address}`);
          topology.configure('node', `route del ${address}`);
        }
      });
      test(`${family}, ${from}: one of four endpoints refuses: every connection succeeds`, async () => {
        const closed = [topology.address('pod1', family), CLOSED] as const;
        const made = service(family, 'TCP', [
          at('pod1', family),
          at('pod2', family),
          at('far', family),
          closed,
        ]);
        await dataplane.sync(serviceMap([made]));
        outcomes.length = 0;
        expectAll(await client(from).ask('tcp-storm', made.address ?? '', 80, LOAD), from);
        const refused = new Set(outcomes.flatMap((one) => (one.kind === 'reset' ? [one.endpoint] : [])));
        assert.deepEqual([...refused], [closed.join(' ')]);
      });
    }
  }

  for (const family of FAMILIES) {
    for (const [index, name] of ['first', 'second'].entries()) {
      test(`${family}: the ${name} endpoint’s answer reaches the client while its connection is rerouted: the connection is that endpoint’s`, async () => {
        const made = service(family, 'TCP', [at('pod1', family), at('pod2', family)]);
        await dataplane.sync(serviceMap([made]));
        using held = holdAnswers(topology.namespace('pod3'));
        const asked = client('pod3').ask('tcp', made.address ?? '', 80, { timeoutMs: 20_000 });
        // The first endpoint answers at once, the second after the timeout that reroutes the connection.
        const [early, late] = await eventually(held.ofOneConnection, ({ length }) => length === 2);
        assert.ok(early && late);
        const first = early.source === topology.address('pod1', family) ? 'pod1' : 'pod2';
        const second = first === 'pod1' ? 'pod2' : 'pod1';
        held.release(index === 0 ? early.frame : late.frame);
        const { answer } = await asked;
        assert.equal(answer.split(' ')[0], index === 0 ? first : second);
      });
    }
  }

  test('a refusal that comes after the connection was rerouted does not end it', async (t) => {
    // The second SYN is on its way to the other endpoint, which answers as late, when the first one is refused.
    const late = (['pod1', 'pod2'] as const).map((place) =>
      delayArrivals(topology.namespace(place), LATE_MS),
    );
    try {
      if (late.some((one) => one === null)) return t.skip('this kernel cannot queue packets');
      const closed = [topology.address('pod1', 'ipv4'), CLOSED] as const;
      const made = service('ipv4', 'TCP', [closed, at('pod2', 'ipv4')]);
      await dataplane.sync(serviceMap([made]));
      const asked = Array.from({ length: 8 }, () =>
        client('pod3').ask('tcp', made.address ?? '', 80, { timeoutMs: 20_000 }),
      );
      for (const { answer } of await Promise.all(asked)) assert.match(answer, /^pod2 /);
    } finally {
      for (const one of late) one?.close();
    }
  });

  test('a Service without failover keeps trying a refusing endpoint', async () => {
    const closed = [topology.address('pod1', 'ipv4'), CLOSED] as const;
    const made = service('ipv4', 'TCP', [at('pod1', 'ipv4'), closed], false);
    await dataplane.sync(serviceMap([made]));
    const { answers = {} } = await client('pod3').ask('tcp-storm', made.address ?? '', 80, LOAD);
    assert.ok((answers.refused ?? 0) > 10, JSON.stringify(answers));
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('a client is refused when all endpoints refuse', async () => {
    const closed = (place: Place) => [topology.address(place, 'ipv4'), CLOSED] as const;
    const made = service('ipv4', 'TCP', [closed('pod1'), closed('pod2')]);
    await dataplane.sync(serviceMap([made]));
    const asked = await client('pod3').ask('tcp', made.address ?? '', 80, { timeoutMs: 20_000 });
    assert.equal(asked.answer, 'refused');
  });

  test('events of connections and datagram sockets are emitted while subscribed', async () => {
    const closed = [topology.address('pod2', 'ipv4'), CLOSED + 1] as const;
    const made = service('ipv4', 'TCP', [closed, at('far', 'ipv4')]);
    const datagrams = service('ipv4', 'UDP', [at('far', 'ipv4')]);
    await dataplane.sync(serviceMap([made, datagrams]));
    const events: FlowEvent[] = [];
    const watch = dataplane.abilities.flows.watch((event) => events.push(event));
    try {
      await client('pod3').ask('tcp-storm', made.address ?? '', 80, {
        times: 30,
        perSecond: 100,
        timeoutMs: 20_000,
      });
      for (const how of ['udp', 'udp-connected'] as const)
        await client('pod3').ask(how, datagrams.address ?? '', 80);
      const wanted = ['established', 'reset', 'ejected', 'rerouted', 'closed', 'chosen'];
      for (let i = 0; i < 100 && !wanted.every((kind) => events.some((event) => event.kind === kind)); i++)
        await new Promise((resolve) => setTimeout(resolve, 20));
      const kinds = new Set(events.map(({ kind }) => kind));
      assert.deepEqual(
        wanted.filter((kind) => !kinds.has(kind as FlowEvent['kind'])),
        [],
      );
      const of = (kind: string) => events.filter((event) => event.kind === kind);
      assert.equal(of('established').length, 30);
      for (const event of of('established')) {
        assert.equal(event.client.ip, topology.address('pod3', 'ipv4'));
        assert.deepEqual(event.service, { ip: made.address, port: 80 });
        assert.deepEqual(event.endpoint, { ip: topology.address('far', 'ipv4'), port: TARGET });
        assert.ok(event.micros > 0 && event.at > 0n);
      }
      assert.equal(of('chosen').length, 2, 'one for each socket');
      for (const {
        protocol,
        client: { ip, port },
      } of of('chosen')) {
        assert.deepEqual([protocol, ip], ['UDP', topology.address('pod3', 'ipv4')]);
        assert.ok(port > 0);
      }
    } finally {
      watch.close();
    }
    events.length = 0;
    await client('pod3').ask('tcp', made.address ?? '', 80);
    assert.deepEqual(events, []);
  });

  test('a rerouted connection survives another mode and the return of this one', async () => {
    const closed = [topology.address('pod1', 'ipv4'), CLOSED] as const;
    const echo = createServer((socket) => socket.on('error', () => {}).pipe(socket));
    echo.listen({ fd: listenTcpIn(topology.namespace('pod2'), '0.0.0.0', TARGET + 5) });
    try {
      const made = service('ipv4', 'TCP', [closed, [topology.address('pod2', 'ipv4'), TARGET + 5]]);
      const map = serviceMap([made]);
      await dataplane.sync(map);
      const kinds: FlowEvent['kind'][] = [];
      const watch = dataplane.abilities.flows.watch(({ kind }) => kinds.push(kind));
      // The first refusal ejects the endpoint, so that one connection is rerouted, unless all choose the other one.
      const exchanges = Array.from({ length: 20 }, () =>
        client('pod3').ask('tcp-echo', made.address ?? '', 80, { times: 40, timeoutMs: 30_000 }),
      );
      const until = async (done: () => boolean) => {
        for (let i = 0; i < 500 && !done(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
      };
      // Pending connections do not survive a switch.
      await until(() => kinds.filter((kind) => kind === 'established').length === exchanges.length);
      assert.ok(kinds.includes('rerouted'));
      watch.close();
      await dataplane.remove({ succeeded: true });
      await dataplane.close();
      assert.ok(
        existsSync(linkPin(pinPath, 'sockOps')),
        'the link that the rerouted connection needs is kept',
      );
      assert.ok(!existsSync(linkPin(pinPath, 'connect4')));
      await new Promise((resolve) => setTimeout(resolve, 300));
      dataplane = open();
      await dataplane.sync(map);
      for (const { answer } of await Promise.all(exchanges)) assert.equal(answer, 'done');
      // Reroutes of closed connections expire after a second.
      await new Promise((resolve) => setTimeout(resolve, 1100));
      await dataplane.remove({ succeeded: true });
      assert.ok(!existsSync(pinPath), 'everything is removed without rerouted connections');
    } finally {
      echo.close();
    }
  });

  test('connections to removed endpoints are aborted, rerouted ones when their new endpoint is removed', async () => {
    const closed = [topology.address('pod1', 'ipv4'), CLOSED] as const;
    const servers = (['pod1', 'pod2'] as const).flatMap((place) =>
      ['0.0.0.0', '::'].map((wildcard) => {
        const server = createServer((socket) => socket.on('error', () => {}).pipe(socket));
        server.listen({ fd: listenTcpIn(topology.namespace(place), wildcard, TARGET + 6) });
        return server;
      }),
    );
    const seen: FlowEvent[] = [];
    const watch = dataplane.abilities.flows.watch((event) => seen.push(event));
    const until = async (done: () => boolean) => {
      for (let i = 0; i < 1000 && !done(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
      assert.ok(
        done(),
        JSON.stringify(seen, (_, value) => (typeof value === 'bigint' ? null : value)),
      );
    };
    try {
      for (const family of FAMILIES) {
        const [one, other] = [topology.address('pod1', family), topology.address('pod2', family)];
        const port = TARGET + 6;
        const a = service(family, 'TCP', [[one, port]]);
        const b = service(family, 'TCP', [[other, port]]);
        const rerouted = service('ipv4', 'TCP', [closed, [topology.address('pod2', 'ipv4'), port]]);
        await dataplane.sync(serviceMap([a, b, rerouted]));
        for (const from of CLIENTS) {
          seen.length = 0;
          const open = (address: string | null, to: number, times: number) =>
            client(from).ask('tcp-echo', address ?? '', to, { times, timeoutMs: 60_000 });
          const ended = open(a.address, 80, 100_000);
          const kept = open(b.address, 80, 15);
          const direct = open(one, port, 15);
          await until(() => seen.filter(({ kind }) => kind === 'established').length === 2);
          assert.equal(await dataplane.abilities.connections.end([{ ip: one, port }]), 1);
          assert.match((await ended).answer, /^ECONNABORTED after/);
          assert.equal((await kept).answer, 'done');
          assert.equal((await direct).answer, 'done');
        }
        if (family === 'ipv6') continue;
        seen.length = 0;
        const exchanges = Array.from({ length: 6 }, () =>
          client('pod3').ask('tcp-echo', rerouted.address ?? '', 80, { times: 100_000, timeoutMs: 60_000 }),
        );
        await until(() => seen.filter(({ kind }) => kind === 'established').length === exchanges.length);
        assert.ok(seen.some(({ kind }) => kind === 'rerouted'));
        assert.equal(await dataplane.abilities.connections.end([{ ip: closed[0], port: closed[1] }]), 0);
        assert.equal(await dataplane.abilities.connections.end([{ ip: other, port }]), exchanges.length);
        for (const { answer } of await Promise.all(exchanges)) assert.match(answer, /^ECONNABORTED after/);
      }
    } finally {
      watch.close();
      for (const server of servers) server.close();
    }
  });

  test('connections that began while the table of pending ones was full are rerouted when it has room', async () => {
    // Not the addresses of other tests, which are ejected.
    const silent = unused('ipv4')[0].replace(/99$/, '96');
    topology.configure('far', `route add blackhole ${silent}`);
    topology.configure('node', `route add ${silent} via 192.0.2.30 dev eth1`);
    const made = service('ipv4', 'TCP', [at('pod1', 'ipv4'), [silent, TARGET]]);
    await dataplane.sync(serviceMap([made]));
    const { maps } = openMaps(pinPath) ?? {};
    assert.ok(maps);
    const { pending_sets: sets } = maps;
    /** A tag of 0: free; else the hash of another flow, entered in this second. */
    const fill = (tag: bigint) => {
      const set = new Uint8Array(PENDING_SET.size);
      new BigUint64Array(set.buffer, PENDING_SET.tags, 4).fill(tag);
      for (let i = 0; i < sets.maxEntries; i++) sets.update(indexKey(i), set);
    };
    try {
      outcomes.length = 0;
      fill((2n << 32n) | ((process.hrtime.bigint() >> 30n) + 32n));
      const storm = client('pod3').ask('tcp-storm', made.address ?? '', 80, { ...LOAD, times: 16 });
      await eventually(
        () => outcomes.filter(({ kind }) => kind === 'timeout').length,
        (count) => count > 1,
      );
      fill(0n);
      const { answers = {} } = await storm;
      assert.deepEqual(
        Object.keys(answers).filter((answer) => !answer.startsWith('pod1 ')),
        [],
      );
    } finally {
      closeMaps(maps);
      topology.configure('far', `route del blackhole ${silent}`);
      topology.configure('node', `route del ${silent}`);
    }
  });

  for (const family of FAMILIES) {
    for (const from of CLIENTS) {
      test(`${family}, ${from}: a connected UDP socket continues with another endpoint when its own is removed`, async () => {
        const made = service(family, 'UDP', [at('pod1', family)]);
        const map = serviceMap([made]);
        await dataplane.sync(map);
        const ask = client(from).ask('udp-repeat', made.address ?? '', 80, { times: 12, timeoutMs: 20_000 });
        await new Promise((resolve) => setTimeout(resolve, 250));
        const moved = serviceMap([{ ...made, routes: service(family, 'UDP', [at('pod2', family)]).routes }]);
        await dataplane.apply(changeBetween(map, moved), moved);
        const { answer, answers = {} } = await ask;
        assert.match(answer, /^pod2 /, JSON.stringify(answers));
        assert.deepEqual(
          Object.keys(answers).map((text) => text.split(' ')[0]),
          ['pod1', 'pod2'],
        );
        // Switches back.
        await dataplane.apply(changeBetween(moved, map), map);
        const again = await client(from).ask('udp-connected', made.address ?? '', 80, { timeoutMs: 5000 });
        assert.match(again.answer, /^pod1 /);
        assert.deepEqual(await dataplane.verify(), []);
      });
    }
  }

  for (const from of CLIENTS) {
    for (const how of ['udp-connected', 'udp'] as const) {
      const kind = how === 'udp' ? 'an unconnected' : 'a connected';
      test(`${from}: ${kind} UDP socket keeps its endpoint while that serves, and then uses another one`, async () => {
        const made = service('ipv4', 'UDP', [at('pod1', 'ipv4')]);
        const address = made.address ?? '';
        const dns = (places: readonly Place[], spared: readonly Place[] = []) =>
          serviceMap([
            frontend({
              kind: 'ClusterIP',
              service: made.owner.name,
              address,
              port: 80,
              protocol: 'UDP',
              endpoints: places.map((place) => endpoint(...at(place, 'ipv4'))),
              spared: spared.map((place) => endpoint(...at(place, 'ipv4'))),
            }),
          ]);
        const place = async (kept?: string) => {
          const more = kept === undefined ? {} : { kept };
          const { answer } = await client(from).ask(how, address, 80, { timeoutMs: 5000, ...more });
          return answer.split(' ')[0];
        };
        const flow = `${from} ${how}`;
        const steps: readonly [what: string, map: ServiceMap, expected: Place, restart?: boolean][] = [
          ['there is one', dns(['pod1']), 'pod1'],
          ['another one is ready', dns(['pod1', 'pod2', 'far']), 'pod1'],
          ['it terminates and still serves', dns(['pod2'], ['pod1']), 'pod1'],
          ['it still serves after a restart', dns(['pod2'], ['pod1']), 'pod1', true],
          ['it is ready again', dns(['pod1', 'pod2']), 'pod1'],
          ['topology hints select others', dns(['pod2', 'far'], ['pod1']), 'pod1'],
          ['it no longer serves', dns(['pod2']), 'pod2'],
          ['the first one is back', dns(['pod1', 'pod2']), 'pod2'],
        ];
        let map = serviceMap([]);
        await dataplane.sync(map);
        for (const [what, next, expected, restart] of steps) {
          if (restart) {
            await dataplane.close();
            dataplane = open();
            await dataplane.sync(next);
          } else await dataplane.apply(changeBetween(map, next), next);
          map = next;
          // A socket whose flow was rerouted may lose the datagram that is on its way.
          for (let i = 0; i < 4; i++) assert.equal(await place(flow), expected, what);
          assert.deepEqual(await dataplane.verify(), [], what);
          if (expected === 'pod1' && what.includes('serves'))
            for (let i = 0; i < 4; i++) assert.equal(await place(), 'pod2', `a new flow when ${what}`);
        }
      });
    }
  }

  test('tc filters instead of tcx links reroute connections too, and are removed with the mode', async () => {
    await dataplane.remove();
    await dataplane.close();
    dataplane = open('clsact');
    // Another program's filter.
    topology.run('node', 'tc', 'qdisc', 'add', 'dev', 'eth0', 'clsact');
    const theirs = ['prio', '7', 'bpf', 'bytecode', '1,6 0 0 0'];
    topology.run('node', 'tc', 'filter', 'add', 'dev', 'eth0', 'ingress', ...theirs);
    for (const from of CLIENTS) {
      const closed = [topology.address('pod1', 'ipv6'), CLOSED] as const;
      const made = service('ipv6', 'TCP', [at('pod1', 'ipv6'), at('far', 'ipv6'), closed]);
      await dataplane.sync(serviceMap([made]));
      expectAll(await client(from).ask('tcp-storm', made.address ?? '', 80, LOAD), from);
    }
    assert.deepEqual(await dataplane.verify(), []);
    assert.match(topology.run('node', 'tc', 'filter', 'show', 'dev', 'v3', 'egress'), /fairlead_egress/);
    topology.run('node', 'tc', 'filter', 'del', 'dev', 'v3', 'egress');
    assert.match((await dataplane.verify())[0]?.object ?? '', /device-v3-tcxEgress$/);
    await dataplane.remove();
    await dataplane.close();
    assert.doesNotMatch(topology.run('node', 'tc', 'qdisc', 'show', 'dev', 'v3'), /clsact/);
    const left = topology.run('node', 'tc', 'filter', 'show', 'dev', 'eth0', 'ingress');
    assert.match(left, /pref 7 /);
    assert.doesNotMatch(left, /fairlead/);
    dataplane = open();
  });

  test('sockets keep the callbacks that another sock_ops program asked for', async () => {
    await dataplane.remove();
    await dataplane.close();
    // Attached first, it is called first.
    const foreign = attachSockOps(group);
    try {
      dataplane = open();
      const made = service('ipv4', 'TCP', [at('pod1', 'ipv4')]);
      await dataplane.sync(serviceMap([made]));
      const { answer } = await client('pod3').ask('tcp', made.address ?? '', 80);
      assert.match(answer, /^pod1 /);
      const flags = foreign.flags() ?? 0;
      assert.equal(flags & RTT_CALLBACK, RTT_CALLBACK, `flags ${flags}`);
      assert.equal(flags & RTO_CALLBACK, RTO_CALLBACK, `flags ${flags}`);
    } finally {
      foreign.close();
    }
  });

  test('programs are attached to a device that appears later', async () => {
    await dataplane.sync(serviceMap([service('ipv4', 'TCP', [at('pod1', 'ipv4')])]));
    topology.configure('node', 'link add later0 type veth peer name later1');
    const until = async (done: () => Promise<boolean>) => {
      for (let i = 0; i < 200 && !(await done()); i++)
        await new Promise((resolve) => setTimeout(resolve, 10));
    };
    await until(async () => (await dataplane.verify()).length === 0);
    assert.deepEqual(await dataplane.verify(), []);
    topology.configure('node', 'link del later0');
    await until(async () => (await dataplane.verify()).length === 0);
    assert.deepEqual(await dataplane.verify(), []);
  });
});
