import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Cidr, hostCidr, type IPFamily } from '../../lib/address.ts';
import { type Clock, manualClock, systemClock } from '../../lib/clock.ts';
import type { Endpoint, Frontend, FrontendKind, Packet, Protocol } from '../../service/model.ts';
import { changeBetween, endpoint, frontend, NODE, serviceMap } from '../testing/service-map.ts';
import { createTopology, type Place, SILENCE_MS, type Topology } from '../testing/topology.ts';
import { createUserspace, type UserspaceDataplane } from './userspace.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const PROTOCOLS = ['TCP', 'UDP'] as const;
const POLICIES = ['plain', 'external-local', 'internal-local'] as const;
const TARGET = 8080;
/** "The node's own address", whichever the kernel picked. */
const NODE_ADDRESSES = ['192.0.2.10', '10.244.1.1', 'fd00:2::10', 'fd00:244:1::1'];
const ALL: readonly Place[] = ['pod1', 'pod2', 'far'];
const LOCAL: readonly Place[] = ['pod1', 'pod2'];

const clusterIP = (family: IPFamily, n: number) => (family === 'ipv4' ? `10.96.0.${n}` : `fd00:96::${n}`);
const vip = (family: IPFamily, n: number) => (family === 'ipv4' ? `203.0.113.${n}` : `fd00:113::${n}`);

describe('userspace mode', () => {
  let topology: Topology;
  let dataplane: UserspaceDataplane;

  const open = (more: { clock?: Clock; owned?: boolean; onForeignChange?: () => void } = {}) =>
    createUserspace({ families: FAMILIES, netns: topology.namespace('node'), random: () => 0, ...more });

  before(async () => {
    topology = createTopology();
    for (const place of ['pod1', 'pod2', 'far'] as const) await topology.serve(place, TARGET);
    dataplane = open();
  });
  after(async () => {
    await dataplane?.close();
    topology?.close();
  });

  const at = (family: IPFamily, ...places: Place[]): Endpoint[] =>
    places.map((place) => endpoint(topology.address(place, family), TARGET, place !== 'far'));

  /** One Service in every family and protocol, with all kinds of frontends, numbered `n`. */
  function service(
    n: number,
    places: readonly Place[],
    policy: (typeof POLICIES)[number] = 'plain',
    more: { affinitySeconds?: number; allowedSources?: string[]; endpoints?: Endpoint[] } = {},
  ): Frontend[] {
    return FAMILIES.flatMap((family) =>
      PROTOCOLS.flatMap((protocol) => {
        const { allowedSources, ...rest } = more;
        const shared = {
          service: `s${n}`,
          family,
          protocol,
          policy,
          endpoints: at(family, ...places),
          ...rest,
        };
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
        ];
      }),
    );
  }

  function destination(kind: FrontendKind, family: IPFamily, n: number): [address: string, port: number] {
    switch (kind) {
      case 'ClusterIP':
        return [clusterIP(family, n), 80];
      case 'NodePort':
        return [topology.address('node', family), 30000 + n];
      default:
        return [vip(family, n), 80];
    }
  }

  /** Asks once for each expected place, twice over: each must answer, and must see the node as its client. */
  async function expectPlaces(
    from: Place,
    protocol: Protocol,
    [address, port]: [string, number],
    places: readonly Place[],
  ): Promise<void> {
    const seen = new Set<string>();
    for (let i = 0; i < places.length * 2; i++) {
      const answer = await topology.ask(from, protocol as 'TCP' | 'UDP', address, port);
      const [place = '', source = ''] = answer.split(' ');
      assert.ok(places.includes(place as Place), `${from} → ${address}:${port}/${protocol}: ${answer}`);
      assert.ok(NODE_ADDRESSES.includes(source), `${place} saw ${source}: a proxy's client is the node`);
      seen.add(place);
    }
    assert.deepEqual([...seen].sort(), [...places].sort());
  }

  async function everywhere(
    run: (family: IPFamily, protocol: 'TCP' | 'UDP') => Promise<void>,
  ): Promise<void> {
    await Promise.all(FAMILIES.flatMap((family) => PROTOCOLS.map((protocol) => run(family, protocol))));
  }

  describe('who reaches which endpoints, which see the node whoever the client is', () => {
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
          test(`${from} → ${kind}, ${policy}: ${local ? 'local' : 'all'} endpoints`, () =>
            everywhere((family, protocol) =>
              expectPlaces(from, protocol, destination(kind, family, 20 + i), local ? LOCAL : ALL),
            ));
        }
      }
    }
    test('node ports answer on the loopback address, and on the others of the node', async () => {
      for (const protocol of PROTOCOLS) {
        for (const address of ['127.0.0.1', '127.1.2.3', '::1', '10.244.1.1', 'fd00:244:1::1']) {
          await expectPlaces('node', protocol, [address, 30020], ALL);
        }
        await expectPlaces('outside', protocol, ['10.244.1.1', 30020], ALL);
      }
    });
    test('the node’s own servers on loopback addresses see the client’s address', async () => {
      await topology.serve('node', 7778);
      for (const protocol of PROTOCOLS) {
        for (const address of ['127.0.0.1', '::1']) {
          assert.equal(await topology.ask('node', protocol, address, 7778), `node ${address}`);
        }
      }
    });
    test('a listener’s own port is closed to everybody who goes there directly', async () => {
      for (const { at: listener, protocol } of dataplane.listeners()) {
        for (const from of ['pod3', 'node', 'outside'] as const) {
          const answer = await topology.ask(from, protocol, listener.address, listener.port);
          assert.equal(answer, 'refused', `${from} → ${listener.address}:${listener.port}/${protocol}`);
        }
      }
    });
    test('an endpoint reaches itself', () =>
      everywhere((family, protocol) =>
        expectPlaces('pod1', protocol, destination('ClusterIP', family, 20), ALL),
      ));
    test('the kernel is as wanted', async () => assert.deepEqual(await dataplane.verify(), []));
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
          ...service(36, ['pod1'], 'plain', { allowedSources: [] }),
        ]),
      );
    });
    const rows: [what: string, from: Place, kind: FrontendKind, n: number, answer: string | RegExp][] = [
      ['no endpoints', 'pod3', 'ClusterIP', 30, 'refused'],
      ['no endpoints', 'node', 'ClusterIP', 30, 'refused'],
      ['no endpoints', 'outside', 'ClusterIP', 30, 'refused'],
      ['no endpoints', 'pod3', 'NodePort', 30, 'refused'],
      ['no endpoints', 'node', 'NodePort', 30, 'refused'],
      ['no endpoints', 'outside', 'NodePort', 30, 'refused'],
      ['no endpoints', 'outside', 'LoadBalancer', 30, 'refused'],
      ['no endpoints', 'node', 'LoadBalancer', 30, 'refused'],
      ['external policy Local without a local one', 'outside', 'NodePort', 31, 'silence'],
      ['external policy Local without a local one', 'outside', 'LoadBalancer', 31, 'silence'],
      ['but pods reach the others', 'pod3', 'LoadBalancer', 31, /^far /],
      ['and the node too', 'node', 'NodePort', 31, /^far /],
      ['internal policy Local without a local one', 'pod3', 'ClusterIP', 32, 'silence'],
      ['internal policy does not touch node ports', 'outside', 'NodePort', 32, /^far /],
      ['a source in the ranges', 'outside', 'LoadBalancer', 33, /^pod1 /],
      ['a source outside the ranges', 'pod3', 'LoadBalancer', 33, 'silence'],
      ['the node outside the ranges', 'node', 'LoadBalancer', 33, 'silence'],
      ['ranges do not touch node ports', 'pod3', 'NodePort', 33, /^pod1 /],
      ['in the ranges, no endpoints', 'outside', 'LoadBalancer', 34, 'refused'],
      ['outside the ranges, no endpoints', 'pod3', 'LoadBalancer', 34, 'silence'],
      ['ranges that hold everybody', 'pod3', 'LoadBalancer', 35, /^pod1 /],
      ['ranges that hold nobody', 'outside', 'LoadBalancer', 36, 'silence'],
    ];
    for (const [what, from, kind, n, expected] of rows) {
      test(`${what}: ${from} → ${kind}: ${expected}`, () =>
        everywhere(async (family, protocol) => {
          const [address, port] = destination(kind, family, n);
          const patience = expected === 'silence' ? SILENCE_MS : undefined;
          const answer = await topology.ask(from, protocol, address, port, undefined, patience);
          if (typeof expected === 'string') assert.equal(answer, expected, `${family} ${protocol}`);
          else assert.match(answer, expected, `${family} ${protocol}`);
        }));
    }
    test('a wrong port of a cluster IP is refused, an address of nobody is silent', async () => {
      for (const from of ['pod3', 'node', 'outside'] as const) {
        for (const family of FAMILIES) {
          assert.equal(await topology.ask(from, 'TCP', clusterIP(family, 33), 81), 'refused');
          assert.equal(await topology.ask(from, 'UDP', clusterIP(family, 33), 81), 'refused');
          assert.equal(
            await topology.ask(from, 'TCP', clusterIP(family, 99), 80, undefined, SILENCE_MS),
            'silence',
          );
        }
      }
    });
    test('the kernel is as wanted', async () => assert.deepEqual(await dataplane.verify(), []));
  });

  test('a frontend that nobody can carry here is named and refused, the rest works', async () => {
    const shared = { kind: 'ClusterIP', service: 'signal', port: 3868 } as const;
    const bad = endpoint('10.244.1.999', 80);
    const report = await dataplane.sync(
      serviceMap([
        frontend({ ...shared, address: '10.96.0.80', protocol: 'SCTP', endpoints: at('ipv4', 'pod1') }),
        frontend({ ...shared, service: 'bad', address: '10.96.0.81', endpoints: [bad] }),
        ...service(82, ['pod1']),
      ]),
    );
    assert.deepEqual(
      report.failed.map(({ key, error }) => [key, (error as { code?: string }).code]),
      [
        ['ipv4/10.96.0.80/SCTP/3868', 'unsupported'],
        ['ipv4/10.96.0.81/TCP/3868', 'EINVAL'],
      ],
    );
    assert.equal(await topology.ask('pod3', 'TCP', '10.96.0.81', 3868), 'refused');
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 82), ['pod1']);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('an address that the node does not have is named', async () => {
    const report = await dataplane.sync(
      serviceMap(service(83, ['pod1']), { ...NODE, ipv4: '192.0.2.77', ipv6: null }),
    );
    const codes = new Set(report.failed.map(({ error }) => (error as { code?: string }).code));
    assert.deepEqual(codes, new Set(['EADDRNOTAVAIL', 'no-node-address']));
    assert.equal(await topology.ask('pod3', 'TCP', clusterIP('ipv4', 83), 80), 'refused');
    assert.deepEqual((await dataplane.sync(serviceMap(service(83, ['pod1'])))).failed, []);
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv6', 83), ['pod1']);
  });

  test('pods are told from others by their interface too, and node ports kept to some addresses', async () => {
    const node = {
      ...NODE,
      localDetection: { mode: 'InterfaceNamePrefix', prefix: 'v' },
      localhostNodePorts: false,
      nodePortAddresses: { ipv4: { all: false, cidrs: [host('10.244.1.1')] }, ipv6: { all: true } },
    } as const;
    await dataplane.sync(serviceMap(service(84, ALL, 'external-local'), node));
    await expectPlaces('pod3', 'TCP', destination('LoadBalancer', 'ipv4', 84), ALL);
    await expectPlaces('outside', 'UDP', destination('LoadBalancer', 'ipv4', 84), LOCAL);
    assert.equal(await topology.ask('outside', 'TCP', '192.0.2.10', 30084), 'refused');
    await expectPlaces('outside', 'TCP', ['10.244.1.1', 30084], LOCAL);
    assert.equal(await topology.ask('node', 'TCP', '::1', 30084), 'refused');
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('an endpoint with the address of a frontend is reached, and not the frontend again', async () => {
    await topology.serve('node', 30085);
    const self = (family: IPFamily) => [endpoint(topology.address('node', family), 30085)];
    await dataplane.sync(
      serviceMap(
        FAMILIES.flatMap((family) =>
          PROTOCOLS.map((protocol) =>
            frontend({
              kind: 'NodePort',
              service: 's85',
              address: null,
              family,
              protocol,
              port: 30085,
              endpoints: self(family),
            }),
          ),
        ),
      ),
    );
    await everywhere((family, protocol) =>
      expectPlaces('outside', protocol, destination('NodePort', family, 85), ['node']),
    );
  });

  test('a client stays with its endpoint until it was away for too long', async () => {
    await dataplane.close();
    const clock = manualClock(Date.now());
    const manual = open({ clock: { now: clock.now, after: systemClock.after } });
    try {
      let map = serviceMap(service(41, ALL, 'plain', { affinitySeconds: 100 }));
      await manual.sync(map);
      for (const protocol of PROTOCOLS) {
        const ask = async (kind: FrontendKind) =>
          (await topology.ask('pod3', protocol, ...destination(kind, 'ipv4', 41))).split(' ')[0];
        const first = await ask('ClusterIP');
        for (const kind of ['ClusterIP', 'LoadBalancer', 'NodePort'] as const) {
          for (let i = 0; i < 4; i++) assert.equal(await ask(kind), first);
        }
        clock.advance(99_000);
        assert.equal(await ask('ClusterIP'), first);
        clock.advance(100_000);
        assert.notEqual(await ask('ClusterIP'), first);
      }
      const [address, port] = destination('ClusterIP', 'ipv6', 41);
      const first = (await topology.ask('pod3', 'TCP', address, port)).split(' ')[0] as Place;
      const rest = ALL.filter((place) => place !== first);
      const next = serviceMap(service(41, rest, 'plain', { affinitySeconds: 100 }));
      await manual.apply(changeBetween(map, next), next);
      map = next;
      const second = (await topology.ask('pod3', 'TCP', address, port)).split(' ')[0] as Place;
      assert.ok(rest.includes(second));
    } finally {
      await manual.close();
      dataplane = open();
    }
  });

  test('changes are applied in place, and cost what changes', async () => {
    const many = (from: number, count: number) =>
      Array.from({ length: count }, (_, i) =>
        frontend({
          kind: 'ClusterIP',
          service: `m${from + i}`,
          address: `10.96.${1 + (i >> 8)}.${i & 255}`,
          port: 80,
          endpoints: at('ipv4', 'pod1'),
        }),
      );
    const rest = many(0, 300);
    let map = serviceMap([...rest, ...service(50, ['pod1'])]);
    await dataplane.sync(map);
    const steps: [frontends: Frontend[], most: number][] = [
      // Endpoints are no matter of the kernel's.
      [[...rest, ...service(50, ['pod2'])], 0],
      [[...rest, ...service(50, ALL)], 0],
      // Twelve frontends of three classes leave a map and enter another, set by set.
      [[...rest, ...service(50, [])], 110],
      [[...rest, ...service(50, ['far'], 'external-local')], 110],
      [[...rest, ...service(50, ['far'], 'external-local', { affinitySeconds: 50 })], 0],
      [[...rest, ...service(50, ['pod1'], 'external-local', { allowedSources: ['10.0.0.0/8'] })], 60],
      [rest, 110],
    ];
    for (const [frontends, most] of steps) {
      const next = serviceMap(frontends);
      const report = await dataplane.apply(changeBetween(map, next), next);
      assert.deepEqual(report.failed, []);
      assert.ok(report.operations <= most, `${report.operations} operations, at most ${most} were expected`);
      assert.deepEqual(await dataplane.verify(), []);
      map = next;
    }
  });

  test('endpoints and policies come and go while connections are opened: none fails', async () => {
    const full = serviceMap([...service(85, ALL), ...service(86, ['pod1', 'pod2'])]);
    const less = serviceMap([
      ...service(85, ['pod1', 'far'], 'internal-local'),
      ...service(86, ['pod2', 'far'], 'external-local'),
    ]);
    await dataplane.sync(full);
    let changing = true;
    let changes = 0;
    const change = (async () => {
      let now = full;
      while (changing) {
        const next = now === full ? less : full;
        await dataplane.apply(changeBetween(now, next), next);
        now = next;
        if (++changes % 40 === 0) await dataplane.sync(now);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    })();
    const bad: string[] = [];
    const client = async (from: Place, n: number) => {
      for (let i = 0; i < 150; i++) {
        const family = FAMILIES[i % 2] ?? 'ipv4';
        const [address, port] = destination('ClusterIP', family, n);
        const answer = await topology.ask(from, 'TCP', address, port);
        if (!/^(pod1|pod2|far) /.test(answer)) bad.push(answer);
      }
    };
    await Promise.all([client('pod3', 85), client('outside', 86), client('pod3', 86)]);
    changing = false;
    await change;
    assert.deepEqual(bad, []);
    assert.ok(changes > 20);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('a restart listens where the run before did', async () => {
    const map = serviceMap(service(87, ALL, 'external-local'));
    await dataplane.sync(map);
    const before = dataplane.listeners();
    await dataplane.close();
    assert.equal(await topology.ask('pod3', 'TCP', ...destination('ClusterIP', 'ipv4', 87)), 'refused');
    dataplane = open();
    await dataplane.sync(map);
    assert.deepEqual(dataplane.listeners(), before);
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 87), ALL);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('what others change is noticed, named and repaired', async () => {
    await dataplane.close();
    let noticed = 0;
    const watched = open({ owned: false, onForeignChange: () => noticed++ });
    try {
      const map = serviceMap(service(60, ['pod1']));
      await watched.sync(map);
      const next = serviceMap(service(60, []));
      await watched.apply(changeBetween(map, next), next);
      await watched.apply(changeBetween(next, map), map);
      const nft = (...words: string[]) => topology.run('node', 'nft', ...words);
      nft('add', 'table', 'ip', 'other');
      await new Promise((resolve) => setTimeout(resolve, 200));
      assert.equal(noticed, 0, 'neither our own changes nor others’ tables are meant');
      nft('flush', 'chain', 'ip', 'fairlead-userspace', 'prerouting');
      nft('delete', 'element', 'ip6', 'fairlead-userspace', 'services-pod', '{ fd00:96::60 . tcp . 80 }');
      nft('add', 'element', 'ip', 'fairlead-userspace', 'cluster-ips', '{ 1.2.3.4 }');
      for (let i = 0; i < 100 && noticed === 0; i++) await new Promise((resolve) => setTimeout(resolve, 20));
      assert.ok(noticed > 0);
      const drifts = (await watched.verify()).map(
        ({ object, kind }) => `${kind} ${object.replace(/ [0-9a-f]{8,}$/, '')}`,
      );
      assert.deepEqual(drifts.sort(), [
        'different table ip fairlead-userspace chain prerouting',
        'missing table ip6 fairlead-userspace map services-pod element',
        'unexpected table ip fairlead-userspace map cluster-ips element',
      ]);
      await watched.sync(map);
      assert.deepEqual(await watched.verify(), []);
      nft('flush', 'ruleset');
      assert.equal((await watched.verify()).length, 2);
      await watched.sync(map);
      assert.deepEqual(await watched.verify(), []);
      await watched.remove();
    } finally {
      await watched.close();
      dataplane = open();
    }
  });

  test('the way of a packet can be told', async () => {
    const frontends = service(88, ALL, 'external-local', {
      affinitySeconds: 5,
      allowedSources: ['192.0.2.0/24'],
    });
    await dataplane.sync(serviceMap(frontends));
    const locate = (kind: FrontendKind, sourceClass: Packet['sourceClass']) => {
      const found = frontends.find((f) => f.kind === kind && f.family === 'ipv4' && f.protocol === 'TCP');
      assert.ok(found);
      const packet = {
        source: '192.0.2.20',
        sourceClass,
        destination: '203.0.113.88',
        port: 80,
        protocol: 'TCP',
      } as const;
      return dataplane.locate(found, packet).map(({ object, effect }) => `${object} | ${effect}`);
    };
    const [ranges, map, listener] = locate('LoadBalancer', 'external');
    assert.match(
      ranges ?? '',
      /set allowed-sources, elements 203\.0\.113\.88 \. tcp \. 80 \. 192\.0\.2\.0\/24/,
    );
    assert.match(
      map ?? '',
      /chain prerouting → chain from-external, map services-external, element 203\.0\.113\.88 \. tcp \. 80 \| redirected to 192\.0\.2\.10:\d+$/,
    );
    assert.match(
      listener ?? '',
      /listener tcp 192\.0\.2\.10:\d+ of pool shop\/s88:p\/TCP\/ipv4\/local, process \d+ \| .*one of 2 in turn.*10\.244\.1\.11:8080, 10\.244\.1\.12:8080; a client of the last 5 s/,
    );
    assert.match(
      locate('NodePort', 'node')[0] ?? '',
      /chain output → chain node-ports-from-node, map nodeports-node, element tcp \. 30088/,
    );
    await dataplane.sync(serviceMap([]));
    assert.deepEqual(locate('ClusterIP', 'pod'), []);
    const text = topology.run('node', 'nft', 'list', 'ruleset');
    assert.match(text, /table ip6 fairlead-userspace/);
    assert.ok(JSON.parse(topology.run('node', 'nft', '-j', 'list', 'ruleset')).nftables.length > 0);
  });

  test('removing leaves what others made, and nothing else', async () => {
    await dataplane.sync(serviceMap(service(89, ALL)));
    assert.equal(dataplane.listeners().length, 4);
    topology.run('node', 'nft', 'add', 'table', 'ip', 'theirs');
    await dataplane.remove();
    const tables = topology.run('node', 'nft', 'list', 'tables');
    assert.doesNotMatch(tables, /fairlead/);
    assert.match(tables, /theirs/);
    assert.deepEqual(dataplane.listeners(), []);
    await dataplane.close();
    const sockets = topology.run('node', 'ss', '-Hltun').split('\n');
    assert.deepEqual(
      sockets.filter((line) => line !== '' && !/:(30085|7778) /.test(line)),
      [],
    );
    dataplane = open();
  });
});

const host = (address: string): Cidr => hostCidr(address) ?? assert.fail(address);
