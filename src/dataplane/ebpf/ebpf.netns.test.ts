import assert from 'node:assert/strict';
import { execFileSync, fork, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createMap } from '../../kernel/bpf/map.ts';
import { pin, unpin } from '../../kernel/bpf/pin.ts';
import { programsAt } from '../../kernel/bpf/program.ts';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Endpoint, Frontend, FrontendKind, Protocol, ServiceOptions } from '../../service/model.ts';
import type { Dataplane } from '../dataplane.ts';
import { changeBetween, endpoint, frontend, NODE, serviceMap } from '../testing/service-map.ts';
import { createTopology, type Place, SILENCE_MS, type Topology } from '../testing/topology.ts';
import { createEbpf } from './ebpf.ts';
import { removePins } from './pins.ts';
import { type Client, makeTestGroup, removeTestGroup, startClient } from './testing/client.ts';
import { attachForeign, openGroup, pinnedNumbers } from './testing/group-programs.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP'];
const POLICIES = ['plain', 'external-local', 'internal-local'] as const;
const TARGET = 8080;
const NODE_ADDRESSES = ['192.0.2.10', '10.244.1.1', 'fd00:2::10', 'fd00:244:1::1'];

const clusterIP = (family: IPFamily, n: number) => (family === 'ipv4' ? `10.96.0.${n}` : `fd00:96::${n}`);
const vip = (family: IPFamily, n: number) => (family === 'ipv4' ? `203.0.113.${n}` : `fd00:113::${n}`);

describe('eBPF mode', () => {
  let topology: Topology;
  let dataplane: Dataplane;
  let group: string;
  let pinPath: string;
  let conntrack: ConntrackConnection;
  const clients = new Map<Place, Client>();

  const open = () =>
    createEbpf({ families: FAMILIES, netns: topology.namespace('node'), cgroup: group, pinPath });

  before(async () => {
    topology = createTopology();
    group = makeTestGroup();
    pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
    for (const place of ['pod1', 'pod2', 'far'] as const) await topology.serve(place, TARGET);
    for (const place of ['pod1', 'pod3', 'node'] as const) {
      clients.set(place, await startClient(topology.namespace(place), group));
    }
    conntrack = new ConntrackConnection(topology.namespace('node'));
    dataplane = open();
  });
  after(async () => {
    await dataplane?.remove();
    await dataplane?.close();
    conntrack?.close();
    for (const client of clients.values()) await client.close();
    if (pinPath) removePins(pinPath);
    topology?.close();
    if (group) await removeTestGroup(group);
  });

  const at = (family: IPFamily, ...places: Place[]): Endpoint[] =>
    places.map((place) => endpoint(topology.address(place, family), TARGET, place !== 'far'));

  function service(
    n: number,
    places: readonly Place[],
    policy: (typeof POLICIES)[number] = 'plain',
    more: { affinitySeconds?: number; allowedSources?: string[]; balance?: ServiceOptions['balance'] } = {},
  ): Frontend[] {
    return FAMILIES.flatMap((family) =>
      PROTOCOLS.flatMap((protocol) => {
        const { allowedSources, balance = 'random', ...rest } = more;
        const endpoints = at(family, ...places);
        const shared = { service: `s${n}`, family, protocol, policy, endpoints, ...rest };
        return [
          frontend({ ...shared, kind: 'ClusterIP', address: clusterIP(family, n), port: 80 }),
          frontend({ ...shared, kind: 'NodePort', address: null, port: 30000 + n }),
          frontend({
            ...shared,
            kind: 'LoadBalancer',
            address: vip(family, n),
            port: 80,
            ...(allowedSources ? { allowedSources } : {}),
          }),
        ].map((f) => ({ ...f, options: { ...f.options, balance } }));
      }),
    );
  }

  function destination(kind: FrontendKind, family: IPFamily, n: number): [string, number] {
    switch (kind) {
      case 'ClusterIP':
        return [clusterIP(family, n), 80];
      case 'NodePort':
        return [topology.address('node', family), 30000 + n];
      default:
        return [vip(family, n), 80];
    }
  }

  function client(place: Place): Client {
    const found = clients.get(place);
    assert.ok(found, place);
    return found;
  }

  /** From inside the control group where the place has a client there, else from outside of it. */
  async function ask(
    from: Place,
    protocol: Protocol,
    address: string,
    port: number,
    patience?: number,
  ): Promise<string> {
    const inside = clients.get(from);
    if (!inside)
      return await topology.ask(from, protocol as 'TCP' | 'UDP', address, port, undefined, patience);
    return (await inside.ask(protocol === 'TCP' ? 'tcp' : 'udp-connected', address, port)).answer;
  }

  async function expectPlaces(
    from: Place,
    protocol: Protocol,
    [address, port]: [string, number],
    places: readonly Place[],
    masqueraded: boolean,
  ): Promise<void> {
    const seen = new Set<string>();
    const family = address.includes(':') ? 'ipv6' : 'ipv4';
    for (let i = 0; i < 80 && (seen.size < places.length || i < 6); i++) {
      const answer = await ask(from, protocol, address, port);
      const [place = '', source = ''] = answer.split(' ');
      assert.ok(places.includes(place as Place), `${from} → ${address}:${port}/${protocol}: ${answer}`);
      if (masqueraded) assert.ok(NODE_ADDRESSES.includes(source), `${place} saw ${source}, not the node`);
      else assert.equal(source, topology.address(from, family), `${place} saw ${source}`);
      seen.add(place);
    }
    assert.deepEqual([...seen].sort(), [...places].sort());
  }

  /** Whether nf_tables had to translate anything for this address. */
  const wasTranslated = (address: string) =>
    conntrack.list(address.includes(':') ? 'ipv6' : 'ipv4', { destination: address }).length > 0;

  const ALL: readonly Place[] = ['pod1', 'pod2', 'far'];
  const LOCAL: readonly Place[] = ['pod1', 'pod2'];

  describe('who reaches which endpoints, and what they see', () => {
    before(async () => {
      const report = await dataplane.sync(
        serviceMap(POLICIES.flatMap((policy, i) => service(20 + i, ALL, policy))),
      );
      assert.deepEqual(report.failed, []);
    });
    for (const from of ['pod3', 'node', 'outside'] as const) {
      for (const kind of ['ClusterIP', 'NodePort', 'LoadBalancer'] as const) {
        for (const [i, policy] of POLICIES.entries()) {
          const external = kind !== 'ClusterIP';
          const local =
            (policy === 'internal-local' && !external) ||
            (policy === 'external-local' && external && from === 'outside');
          const masqueraded =
            from === 'node' ||
            (from === 'pod3' ? external && policy !== 'external-local' : !(local && external));
          test(`${from} → ${kind}, ${policy}: ${local ? 'local' : 'all'} endpoints${masqueraded ? ', masqueraded' : ''}`, async () => {
            for (const family of FAMILIES) {
              for (const protocol of PROTOCOLS) {
                const to = destination(kind, family, 20 + i);
                await expectPlaces(from, protocol, to, local ? LOCAL : ALL, masqueraded);
              }
            }
          });
        }
      }
    }
    test('no packet of a socket in the control group is translated, all others are', () => {
      // Clients outside and inside have asked for all of these above.
      for (const family of FAMILIES) {
        const flows = conntrack.list(family, { destination: clusterIP(family, 20) });
        const sources = new Set(flows.map(({ original }) => original.source));
        assert.deepEqual([...sources], [topology.address('outside', family)]);
      }
    });
    test('the kernel is as wanted', async () => assert.deepEqual(await dataplane.verify(), []));
  });

  describe('what sockets see', () => {
    before(() => dataplane.sync(serviceMap([...service(25, LOCAL), ...service(26, ['far'])])));
    for (const from of ['pod3', 'node'] as const) {
      test(`a TCP socket of ${from} speaks to the Service`, async () => {
        for (const family of FAMILIES) {
          const asked = await client(from).ask('tcp', clusterIP(family, 25), 80);
          assert.match(asked.answer, /^pod[12] /);
          assert.equal(asked.peer, `${clusterIP(family, 25)} 80`);
        }
      });
      test(`an IPv6 socket of ${from} reaches an IPv4 Service by its mapped address`, async () => {
        for (const how of ['tcp', 'udp', 'udp-connected'] as const) {
          const asked = await client(from).ask(how, '::ffff:10.96.0.25', 80);
          assert.match(asked.answer, /^pod[12] /, how);
          assert.equal(asked.peer, '::ffff:10.96.0.25 80', how);
        }
      });
      test(`answers to a UDP socket of ${from} come from the Service`, async () => {
        for (const how of ['udp', 'udp-connected'] as const) {
          for (const family of FAMILIES) {
            const asked = await client(from).ask(how, clusterIP(family, 25), 80);
            assert.match(asked.answer, /^pod[12] /, how);
            assert.equal(asked.peer, `${clusterIP(family, 25)} 80`, how);
          }
        }
      });
    }
    test('one UDP socket speaks to two Services', async () => {
      for (const family of FAMILIES) {
        const asked = await client('pod3').ask('udp', clusterIP(family, 25), 80, {
          also: [[clusterIP(family, 26), 80]],
        });
        const pairs = asked.answer
          .split(', ')
          .map((text, i) => [text.split(' ')[0], asked.peer?.split(', ')[i]]);
        for (const [place, peer] of pairs) {
          assert.equal(peer, `${clusterIP(family, place === 'far' ? 26 : 25)} 80`);
        }
        assert.equal(new Set(pairs.map(([, peer]) => peer)).size, 2);
      }
    });
    test('a socket that connects to an endpoint itself sees the endpoint', async () => {
      const address = topology.address('pod1', 'ipv4');
      const asked = await client('pod3').ask('tcp', address, TARGET);
      assert.equal(asked.peer, `${address} ${TARGET}`);
    });
    test('a process outside of the control group is carried by nftables', async () => {
      const stranger = await startClient(topology.namespace('pod3'), null);
      try {
        const asked = await stranger.ask('tcp', clusterIP('ipv4', 25), 80);
        assert.match(asked.answer, /^pod[12] /);
        assert.ok(wasTranslated(clusterIP('ipv4', 25)));
      } finally {
        await stranger.close();
      }
    });
  });

  describe('what is refused', () => {
    before(async () => {
      await dataplane.sync(
        serviceMap([
          ...service(30, []),
          ...service(31, ['far'], 'external-local'),
          ...service(32, ['far'], 'internal-local'),
          ...service(33, ['pod1'], 'plain', { allowedSources: ['192.0.2.20/32', 'fd00:2::20/128'] }),
          ...service(34, [], 'plain', { allowedSources: ['192.0.2.20/32', 'fd00:2::20/128'] }),
          ...service(35, ['pod1'], 'plain', { allowedSources: ['0.0.0.0/0', '::/0'] }),
        ]),
      );
    });
    const rows: [what: string, from: Place, kind: FrontendKind, n: number, answer: string | RegExp][] = [
      ['no endpoints', 'pod3', 'ClusterIP', 30, 'refused'],
      ['no endpoints', 'node', 'ClusterIP', 30, 'refused'],
      ['no endpoints', 'outside', 'ClusterIP', 30, 'refused'],
      ['no endpoints', 'pod3', 'NodePort', 30, 'refused'],
      ['no endpoints', 'node', 'NodePort', 30, 'refused'],
      ['no endpoints', 'pod3', 'LoadBalancer', 30, 'refused'],
      ['no endpoints', 'node', 'LoadBalancer', 30, 'refused'],
      ['external policy Local without a local one', 'outside', 'LoadBalancer', 31, 'silence'],
      ['but pods reach the others', 'pod3', 'LoadBalancer', 31, /^far 10\.244\.1\.13$|^far fd00:244:1::13$/],
      ['and the node too', 'node', 'NodePort', 31, /^far/],
      ['internal policy Local without a local one', 'pod3', 'ClusterIP', 32, 'silence'],
      ['internal policy Local without a local one', 'node', 'ClusterIP', 32, 'silence'],
      ['a source in the ranges', 'outside', 'LoadBalancer', 33, /^pod1/],
      ['a source outside the ranges', 'pod3', 'LoadBalancer', 33, 'silence'],
      ['the node outside the ranges', 'node', 'LoadBalancer', 33, 'silence'],
      ['outside the ranges, no endpoints', 'pod3', 'LoadBalancer', 34, 'silence'],
      ['ranges that hold everybody', 'pod3', 'LoadBalancer', 35, /^pod1/],
    ];
    for (const [what, from, kind, n, expected] of rows) {
      test(`${what}: ${from} → ${kind}: ${expected}`, async () => {
        const asks = FAMILIES.flatMap((family) => PROTOCOLS.map((protocol) => ({ family, protocol })));
        await Promise.all(
          asks.map(async ({ family, protocol }) => {
            const [address, port] = destination(kind, family, n);
            const patience = expected === 'silence' ? SILENCE_MS : undefined;
            const answer = await ask(from, protocol, address, port, patience);
            if (typeof expected === 'string') assert.equal(answer, expected, `${family} ${protocol}`);
            else assert.match(answer, expected, `${family} ${protocol}`);
          }),
        );
      });
    }
    test('a wrong port of a cluster IP is refused, an address of nobody is silent', async () => {
      for (const from of ['pod3', 'node'] as const) {
        for (const family of FAMILIES) {
          assert.equal(await ask(from, 'TCP', clusterIP(family, 33), 81), 'refused');
          assert.equal(await ask(from, 'UDP', clusterIP(family, 33), 81), 'refused');
          assert.equal(await ask(from, 'TCP', clusterIP(family, 99), 80, SILENCE_MS), 'silence');
        }
      }
    });
    test('the kernel is as wanted', async () => assert.deepEqual(await dataplane.verify(), []));
  });

  test('an endpoint that reaches itself does so inside its pod', async () => {
    await dataplane.sync(serviceMap(service(40, ['pod1'])));
    for (const family of FAMILIES) {
      for (const protocol of PROTOCOLS) {
        const answer = await ask('pod1', protocol, ...destination('ClusterIP', family, 40));
        assert.equal(answer, `pod1 ${topology.address('pod1', family)}`);
      }
    }
  });

  test('a pod stays with its endpoint while that serves, over other changes too', async () => {
    let map = serviceMap(service(41, ALL, 'plain', { affinitySeconds: 100 }));
    await dataplane.sync(map);
    for (const family of FAMILIES) {
      const [address, port] = destination('ClusterIP', family, 41);
      const first = await ask('pod3', 'TCP', address, port);
      for (let i = 0; i < 15; i++) assert.equal(await ask('pod3', 'TCP', address, port), first);
    }
    const [address, port] = destination('ClusterIP', 'ipv4', 41);
    const first = (await ask('pod3', 'TCP', address, port)).split(' ')[0] as Place;
    const other = ALL.find((place) => place !== first) as Place;
    const change = async (...places: Place[]) => {
      const next = serviceMap(service(41, places, 'plain', { affinitySeconds: 100 }));
      await dataplane.apply(changeBetween(map, next), next);
      map = next;
    };
    await change(...ALL.filter((place) => place !== other));
    for (let i = 0; i < 8; i++) assert.equal((await ask('pod3', 'TCP', address, port)).split(' ')[0], first);
    const rest = ALL.filter((place) => place !== first);
    await change(...rest);
    const second = (await ask('pod3', 'TCP', address, port)).split(' ')[0] as Place;
    assert.ok(rest.includes(second), `${second} after ${first} was removed`);
    await change(...ALL);
    for (let i = 0; i < 8; i++) assert.equal((await ask('pod3', 'TCP', address, port)).split(' ')[0], second);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('affinity ends with its time', async () => {
    await dataplane.sync(serviceMap(service(42, ALL, 'plain', { affinitySeconds: 1 })));
    const seen = new Set<string>();
    for (let i = 0; i < 12 && seen.size < 2; i++) {
      if (i > 0) await new Promise((resolve) => setTimeout(resolve, 1100));
      seen.add(await ask('pod3', 'TCP', ...destination('ClusterIP', 'ipv4', 42)));
    }
    assert.equal(seen.size, 2, 'a client that was away longer is free to go elsewhere');
  });

  test('with consistent hashing a pod always reaches the same endpoint', async () => {
    await dataplane.sync(serviceMap(service(43, ALL, 'plain', { balance: 'maglev' })));
    assert.deepEqual(await dataplane.verify(), []);
    const [address, port] = destination('ClusterIP', 'ipv4', 43);
    const first = await ask('pod3', 'TCP', address, port);
    for (let i = 0; i < 10; i++) assert.equal(await ask('pod3', 'TCP', address, port), first);
  });

  test('an endpoint that is a frontend itself is never translated twice', async () => {
    const lb = (family: IPFamily, target: Endpoint) =>
      frontend({
        kind: 'LoadBalancer',
        service: 'outer',
        address: vip(family, 45),
        port: 80,
        endpoints: [target],
      });
    const inner = service(44, ['pod1']);
    let map = serviceMap([...inner, lb('ipv4', endpoint(clusterIP('ipv4', 44), 80))]);
    await dataplane.sync(map);
    // Nothing serves at the cluster IP itself: one translation leads nowhere, a second would reach the pod.
    assert.notEqual((await ask('node', 'TCP', vip('ipv4', 45), 80)).split(' ')[0], 'pod1');
    const next = serviceMap([
      ...inner.slice(1),
      lb('ipv4', endpoint(topology.address('pod2', 'ipv4'), TARGET)),
    ]);
    await dataplane.apply(changeBetween(map, next), next);
    map = next;
    assert.match(await ask('node', 'TCP', vip('ipv4', 45), 80), /^pod2/);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('changes are applied in place, and equal what a fresh start would program', async () => {
    let map = serviceMap([...service(50, ['pod1']), ...service(51, ALL)]);
    await dataplane.sync(map);
    const steps = [
      [...service(50, ['pod2']), ...service(51, ALL)],
      [...service(50, ['pod2']), ...service(51, [])],
      [...service(51, ['pod1'], 'external-local', { affinitySeconds: 50 })],
      [...service(51, ['far'], 'external-local'), ...service(52, ALL, 'plain', { balance: 'maglev' })],
      [],
    ];
    for (const frontends of steps) {
      const next = serviceMap(frontends);
      const report = await dataplane.apply(changeBetween(map, next), next);
      assert.deepEqual(report.failed, []);
      assert.deepEqual(await dataplane.verify(), []);
      map = next;
    }
  });

  test('endpoints come and go while connections are opened: none fails', async () => {
    const full = serviceMap([...service(85, ALL), ...service(86, ['pod1', 'pod2'])]);
    const less = serviceMap([...service(85, ['pod1', 'far']), ...service(86, ['pod2', 'far'])]);
    await dataplane.sync(full);
    let changing = true;
    let changes = 0;
    const change = (async () => {
      let now = full;
      while (changing) {
        const next = now === full ? less : full;
        await dataplane.apply(changeBetween(now, next), next);
        now = next;
        if (++changes % 20 === 0) await dataplane.sync(now);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    })();
    const bad: string[] = [];
    const run = async (from: Place, n: number) => {
      for (let i = 0; i < 150; i++) {
        const family = FAMILIES[i % 2] ?? 'ipv4';
        const answer = await ask(from, 'TCP', ...destination('ClusterIP', family, n));
        if (!/^(pod1|pod2|far) /.test(answer)) bad.push(answer);
      }
    };
    await Promise.all([run('pod3', 85), run('node', 86), run('pod3', 86)]);
    changing = false;
    await change;
    assert.deepEqual(bad, []);
    assert.ok(changes > 10);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('maps that have become too small are made anew under the programs', async () => {
    const many = Array.from({ length: 400 }, (_, i) => endpoint(`10.244.3.${i % 250}`, 8000 + i));
    const frontends = (count: number) => [
      ...service(88, LOCAL, 'plain', { affinitySeconds: 100 }),
      ...Array.from({ length: count }, (_, i) =>
        frontend({
          kind: 'ClusterIP',
          service: `m${i}`,
          address: `10.96.${1 + (i >> 8)}.${i & 255}`,
          port: 80,
          endpoints: many.slice(0, 130 + (i % 200)),
        }),
      ),
    ];
    let map = serviceMap(frontends(3));
    await dataplane.sync(map);
    // Clearing away large nf_tables maps can keep this process, which the servers are in, for longer than a second.
    const reach = () =>
      client('pod3').ask('tcp', ...destination('ClusterIP', 'ipv4', 88), { timeoutMs: 10_000 });
    const { answer: first } = await reach();
    for (const count of [100, 400, 5]) {
      const next = serviceMap(frontends(count));
      const report = await dataplane.apply(changeBetween(map, next), next);
      assert.deepEqual(report.failed, []);
      assert.deepEqual(await dataplane.verify(), []);
      assert.equal((await reach()).answer, first);
      map = next;
    }
  });

  test('traffic outlives the process, and the next one takes over: clients stay with their endpoints', async () => {
    const map = serviceMap(service(87, ALL, 'plain', { affinitySeconds: 100 }));
    await dataplane.sync(map);
    const [address, port] = destination('ClusterIP', 'ipv4', 87);
    const first = await ask('pod3', 'TCP', address, port);
    await dataplane.close();
    for (let i = 0; i < 5; i++) assert.equal(await ask('pod3', 'TCP', address, port), first);
    dataplane = open();
    await dataplane.sync(map);
    for (let i = 0; i < 8; i++) assert.equal(await ask('pod3', 'TCP', address, port), first);
    assert.deepEqual(await dataplane.verify(), []);
    assert.equal(groupPrograms().length, 1, 'the programs were replaced, not doubled');
  });

  test('a process that is killed leaves everything at work', async () => {
    await dataplane.remove();
    await dataplane.close();
    const map = serviceMap(service(27, LOCAL));
    const child = fork(fileURLToPath(import.meta.resolve('./testing/programming-process.ts')), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    });
    await new Promise<void>((resolve, reject) => {
      child.once('exit', (code) => reject(new Error(`ended with ${code}`)));
      child.once('message', () => resolve());
      child.send({ map, netns: topology.namespace('node'), cgroup: group, pinPath });
    });
    child.removeAllListeners('exit');
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
    for (const family of FAMILIES) {
      assert.match(await ask('pod3', 'TCP', clusterIP(family, 27), 80), /^pod[12]/);
      assert.ok(!wasTranslated(clusterIP(family, 27)));
    }
    dataplane = open();
    await dataplane.sync(map);
    assert.deepEqual(await dataplane.verify(), []);
    assert.equal(groupPrograms().length, 1);
  });

  test('what others change is named and repaired', async () => {
    const map = serviceMap(service(60, LOCAL, 'plain', { affinitySeconds: 50 }));
    await dataplane.sync(map);
    execFileSync('rm', [`${pinPath}/v1/link-connect4`]);
    execFileSync('bpftool', [
      'map',
      'update',
      'pinned',
      `${pinPath}/v1/map-endpoints`,
      'key',
      '0',
      '0',
      '0',
      '0',
      'value',
      ...Array(28).fill('0'),
    ]);
    const drifts = await dataplane.verify();
    assert.ok(drifts.some(({ object, kind }) => kind === 'missing' && object.endsWith('link-connect4')));
    await dataplane.sync(map);
    assert.deepEqual(await dataplane.verify(), []);
    assert.match(await ask('pod3', 'TCP', clusterIP('ipv4', 60), 80), /^pod[12]/);
  });

  test('a frontend that cannot be written is reported and left out, the rest works', async () => {
    const bad = service(71, ['pod1']).map((f) => ({
      ...f,
      routes: Object.fromEntries(
        Object.entries(f.routes).map(([source, route]) => [
          source,
          route.action === 'forward'
            ? { ...route, pool: { ...route.pool, endpoints: [endpoint('10.244.1.999', 80)] } }
            : route,
        ]),
      ) as unknown as Frontend['routes'],
    }));
    const report = await dataplane.sync(serviceMap([...service(70, ['pod1']), ...bad]));
    assert.deepEqual(report.failed.map(({ key }) => key).sort(), bad.map(({ key }) => key).sort());
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 70), ['pod1'], false);
  });

  test('removing leaves what others made, and nothing else', async () => {
    const foreign = openGroup(group);
    await dataplane.sync(serviceMap(service(83, ALL, 'plain', { affinitySeconds: 9 }), NODE));
    const device = attachForeign(topology.namespace('node'), 'eth0');
    const theirs = createMap({ name: 'theirs', kind: 'array', keySize: 4, valueSize: 4, maxEntries: 1 });
    pin(theirs.fd, `${pinPath}/theirs`);
    theirs.close();
    try {
      assert.equal(groupPrograms().length, 2);
      const numbers = pinnedNumbers(`${pinPath}/v1`);
      assert.ok(numbers.programs.length >= 11 && numbers.maps.length >= 12);
      await dataplane.remove();
      await dataplane.close();
      dataplane = open();
      assert.deepEqual(groupPrograms(), [foreign.programId]);
      assert.ok(!existsSync(`${pinPath}/v1`));
      // The kernel takes them away a moment after their last user.
      const isGone = (kind: string, id: number) =>
        spawnSync('bpftool', [kind, 'show', 'id', `${id}`], { stdio: 'ignore' }).status !== 0;
      const left = () => [
        ...numbers.programs.filter((id) => !isGone('prog', id)),
        ...numbers.maps.filter((id) => !isGone('map', id)),
      ];
      for (let i = 0; i < 50 && left().length > 0; i++)
        await new Promise((resolve) => setTimeout(resolve, 100));
      assert.deepEqual(left(), []);
      assert.doesNotMatch(topology.run('node', 'nft', 'list', 'tables'), /fairlead/);
      assert.ok(device.isAttached());
      assert.ok(existsSync(`${pinPath}/theirs`), 'and the file system with it');
    } finally {
      device.close();
      foreign.close();
      unpin(`${pinPath}/theirs`);
    }
    removePins(pinPath);
    assert.ok(!existsSync(pinPath), 'the file system that was mounted for the pins is gone');
  });

  function groupPrograms(): number[] {
    const { fd, close } = openGroup(group, false);
    try {
      return programsAt(fd, 'connect4');
    } finally {
      close();
    }
  }
});
