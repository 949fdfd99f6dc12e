import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import type { IPFamily } from '../../lib/address.ts';
import type { Endpoint, Frontend, FrontendKind, Protocol } from '../../service/model.ts';
import type { Dataplane } from '../dataplane.ts';
import { changeBetween, endpoint, frontend, NODE, serviceMap } from '../testing/service-map.ts';
import { createTopology, type Place, SILENCE_MS, type Topology } from '../testing/topology.ts';
import { createIpvs } from './ipvs.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP'];
const POLICIES = ['plain', 'external-local', 'internal-local'] as const;
const TARGET = 8080;
/** "The node's own address", whichever the kernel picked. */
const NODE_ADDRESSES = ['192.0.2.10', '10.244.1.1', 'fd00:2::10', 'fd00:244:1::1'];

const clusterIP = (family: IPFamily, n: number) => (family === 'ipv4' ? `10.96.0.${n}` : `fd00:96::${n}`);
const vip = (family: IPFamily, n: number) => (family === 'ipv4' ? `203.0.113.${n}` : `fd00:113::${n}`);

describe('IPVS mode', () => {
  let topology: Topology;
  let dataplane: Dataplane;

  before(async () => {
    topology = createTopology();
    for (const place of ['pod1', 'pod2', 'far'] as const) await topology.serve(place, TARGET);
    dataplane = createIpvs({ families: FAMILIES, netns: topology.namespace('node') });
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
    more: { affinitySeconds?: number; allowedSources?: string[] } = {},
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

  /**
   * Asks until every expected place has answered, and checks each answer: the place, and whether it saw the client's
   * own address or the node's.
   */
  async function expectPlaces(
    from: Place,
    protocol: Protocol,
    [address, port]: [string, number],
    places: readonly Place[],
    masqueraded: boolean,
    clientAddress?: string,
  ): Promise<void> {
    const seen = new Set<string>();
    const family = address.includes(':') ? 'ipv6' : 'ipv4';
    for (let i = 0; i < 80 && (seen.size < places.length || i < 6); i++) {
      const answer = await topology.ask(from, protocol as 'TCP' | 'UDP', address, port);
      const [place = '', source = ''] = answer.split(' ');
      assert.ok(places.includes(place as Place), `${from} → ${address}:${port}/${protocol}: ${answer}`);
      if (masqueraded) assert.ok(NODE_ADDRESSES.includes(source), `${place} saw ${source}, not the node`);
      else assert.equal(source, clientAddress ?? topology.address(from, family), `${place} saw ${source}`);
      seen.add(place);
    }
    assert.deepEqual([...seen].sort(), [...places].sort());
  }

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
    test('node ports answer on the loopback address', async () => {
      for (const protocol of PROTOCOLS) {
        for (const address of ['127.0.0.1', '::1']) {
          await expectPlaces('node', protocol, [address, 30020], ALL, true);
        }
      }
    });
    test('but packets from outside to a loopback address are dropped', {
      skip: existsSync('/usr/sbin/nft') ? false : 'nft is not installed',
    }, async () => {
      await topology.serve('node', 7777);
      // No program can send such a packet plainly: its destination is rewritten behind the routing.
      topology.run('outside', 'nft', 'add table ip martian');
      topology.run(
        'outside',
        'nft',
        'add chain ip martian post { type filter hook postrouting priority 300; }',
      );
      topology.run('outside', 'nft', 'add rule ip martian post ip daddr 198.18.0.1 ip daddr set 127.0.0.1');
      assert.equal(
        await topology.ask('outside', 'UDP', '198.18.0.1', 7777, undefined, SILENCE_MS),
        'silence',
      );
    });
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
      ['but pods reach the others', 'pod3', 'LoadBalancer', 31, /^far 10\.244\.1\.13$|^far fd00:244:1::13$/],
      ['and the node too', 'node', 'NodePort', 31, /^far/],
      ['internal policy Local without a local one', 'pod3', 'ClusterIP', 32, 'silence'],
      ['internal policy does not touch node ports', 'outside', 'NodePort', 32, /^far/],
      ['a source in the ranges', 'outside', 'LoadBalancer', 33, /^pod1/],
      ['a source outside the ranges', 'pod3', 'LoadBalancer', 33, 'silence'],
      ['the node outside the ranges', 'node', 'LoadBalancer', 33, 'silence'],
      ['ranges do not touch node ports', 'pod3', 'NodePort', 33, /^pod1/],
      ['in the ranges, no endpoints', 'outside', 'LoadBalancer', 34, 'refused'],
      ['outside the ranges, no endpoints', 'pod3', 'LoadBalancer', 34, 'silence'],
      ['ranges that hold everybody', 'pod3', 'LoadBalancer', 35, /^pod1/],
      ['ranges that hold nobody', 'outside', 'LoadBalancer', 36, 'silence'],
    ];
    for (const [what, from, kind, n, expected] of rows) {
      test(`${what}: ${from} → ${kind}: ${expected}`, async () => {
        const asks = FAMILIES.flatMap((family) => PROTOCOLS.map((protocol) => ({ family, protocol })));
        await Promise.all(
          asks.map(async ({ family, protocol }) => {
            const [address, port] = destination(kind, family, n);
            const patience = expected === 'silence' ? SILENCE_MS : undefined;
            const answer = await topology.ask(
              from,
              protocol as 'TCP' | 'UDP',
              address,
              port,
              undefined,
              patience,
            );
            if (typeof expected === 'string') assert.equal(answer, expected, `${family} ${protocol}`);
            else assert.match(answer, expected, `${family} ${protocol}`);
          }),
        );
      });
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

  test('an endpoint that reaches itself sees the node', async () => {
    await dataplane.sync(serviceMap(service(40, ['pod1'])));
    for (const family of FAMILIES) {
      for (const protocol of PROTOCOLS) {
        await expectPlaces('pod1', protocol, destination('ClusterIP', family, 40), ['pod1'], true);
      }
    }
  });

  test('a client stays with its endpoint, hundreds of others with theirs', async () => {
    await dataplane.sync(serviceMap(service(41, ['pod1', 'pod2', 'far'], 'plain', { affinitySeconds: 100 })));
    for (const family of FAMILIES) {
      const [address, port] = destination('ClusterIP', family, 41);
      const first = await topology.ask('pod3', 'TCP', address, port);
      for (let i = 0; i < 15; i++) assert.equal(await topology.ask('pod3', 'TCP', address, port), first);
    }
    const clients = Array.from({ length: 330 }, (_, i) =>
      `10.244.7.${i % 250}`.replace('.7.', i < 250 ? '.7.' : '.8.'),
    );
    topology.configure('pod3', ...clients.map((client) => `addr add ${client}/32 dev lo`));
    topology.configure('node', 'route add 10.244.7.0/24 dev v3', 'route add 10.244.8.0/24 dev v3');
    const [address, port] = destination('ClusterIP', 'ipv4', 41);
    const firsts: string[] = [];
    for (const client of clients) firsts.push(await topology.ask('pod3', 'UDP', address, port, client));
    assert.equal(new Set(firsts.map((answer) => answer.split(' ')[0])).size, 3);
    for (const [i, client] of clients.entries()) {
      assert.equal(await topology.ask('pod3', 'UDP', address, port, client), firsts[i]);
    }
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('changes are applied in place, and equal what a fresh start would program', async () => {
    let map = serviceMap([...service(50, ['pod1']), ...service(51, ALL)]);
    await dataplane.sync(map);
    const steps = [
      [...service(50, ['pod2']), ...service(51, ALL)],
      [...service(50, ['pod2']), ...service(51, [])],
      [...service(51, ['pod1'], 'external-local', { affinitySeconds: 50 })],
      [...service(51, ['far'], 'external-local'), ...service(52, ALL)],
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

  test('other protocols and the interfaces as detection can be programmed', async () => {
    const node = { ...NODE, localDetection: { mode: 'InterfaceNamePrefix', prefix: 'v' } } as const;
    const sctp = frontend({
      kind: 'ClusterIP',
      service: 'signal',
      address: '10.96.0.80',
      port: 3868,
      protocol: 'SCTP',
      endpoints: at('ipv4', 'pod1', 'pod2'),
    });
    await dataplane.sync(serviceMap([sctp, ...service(81, ['pod2'])], node));
    assert.deepEqual(await dataplane.verify(), []);
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 81), ['pod2'], false);
    await expectPlaces('outside', 'TCP', destination('ClusterIP', 'ipv6', 81), ['pod2'], true);
    await expectPlaces('node', 'TCP', destination('ClusterIP', 'ipv4', 81), ['pod2'], true);
  });

  test('node ports only on the addresses that are asked for', async () => {
    const node = {
      ...NODE,
      localhostNodePorts: false,
      nodePortAddresses: {
        ipv4: { all: false, cidrs: [{ ...hostOf('10.244.1.1') }] },
        ipv6: { all: true },
      },
    } as const;
    await dataplane.sync(serviceMap(service(82, ['pod2']), node));
    assert.equal(await topology.ask('outside', 'TCP', '192.0.2.10', 30082), 'refused');
    assert.match(await topology.ask('outside', 'TCP', '10.244.1.1', 30082), /^pod2/);
    assert.equal(await topology.ask('node', 'TCP', '::1', 30082), 'refused');
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('affinity ends with its endpoint', async () => {
    const sticky = (...places: Place[]) => serviceMap(service(84, places, 'plain', { affinitySeconds: 1 }));
    let map = sticky(...ALL);
    await dataplane.sync(map);
    const [address, port] = destination('NodePort', 'ipv4', 84);
    const ask = async () => (await topology.ask('outside', 'TCP', address, port)).split(' ')[0] as Place;
    const first = await ask();
    for (let i = 0; i < 5; i++) assert.equal(await ask(), first);
    const rest = ALL.filter((place) => place !== first);
    const next = sticky(...rest);
    await dataplane.apply(changeBetween(map, next), next);
    map = next;
    const second = await ask();
    assert.ok(rest.includes(second), `${second} after ${first} was removed`);
    for (let i = 0; i < 5; i++) assert.equal(await ask(), second);
    assert.match(topology.run('node', 'ipvsadm', '-Ln'), /192\.0\.0\.8:\d+ rr persistent 1/);
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
        if (++changes % 40 === 0) await dataplane.sync(now);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    })();
    const bad: string[] = [];
    const client = async (from: Place, n: number) => {
      for (let i = 0; i < 150; i++) {
        const family = FAMILIES[i % 2] ?? 'ipv4';
        const answer = await topology.ask(from, 'TCP', ...destination('ClusterIP', family, n));
        if (!/^(pod1|pod2|far) /.test(answer)) bad.push(answer);
      }
    };
    await Promise.all([client('pod3', 85), client('outside', 86), client('pod3', 86)]);
    changing = false;
    await change;
    // A first packet that meets a commit may be dropped and sent again a second later, which the asker calls silence.
    assert.ok(bad.length <= 2 && bad.every((answer) => answer === 'silence'), bad.join(', '));
    assert.ok(changes > 20);
    assert.deepEqual(await dataplane.verify(), []);
  });

  test('a restart takes the table over without a gap, and clients stay with their endpoints', async () => {
    const map = serviceMap(service(87, ALL, 'plain', { affinitySeconds: 100 }));
    await dataplane.sync(map);
    const [address, port] = destination('ClusterIP', 'ipv4', 87);
    const first = await topology.ask('pod3', 'TCP', address, port);
    await dataplane.close();
    assert.equal(await topology.ask('pod3', 'TCP', address, port), first);
    dataplane = createIpvs({ families: FAMILIES, netns: topology.namespace('node') });
    await dataplane.sync(map);
    for (let i = 0; i < 8; i++) assert.equal(await topology.ask('pod3', 'TCP', address, port), first);
  });

  test('the ruleset can be listed, and a Service found in it', async () => {
    await dataplane.sync(
      serviceMap([
        ...service(88, ALL, 'external-local', { affinitySeconds: 5, allowedSources: ['192.0.2.0/24'] }),
        ...service(89, [], 'plain'),
      ]),
    );
    await topology.ask('outside', 'TCP', ...destination('LoadBalancer', 'ipv4', 88));
    const text = topology.run('node', 'nft', 'list', 'ruleset');
    assert.match(text, /10\.96\.0\.88 \. tcp \. 80 comment "shop\/s88:p" : goto/);
    assert.match(text, /10\.96\.0\.89 \. udp \. 80 comment "shop\/s89:p" : goto refuse/);
    assert.ok(JSON.parse(topology.run('node', 'nft', '-j', 'list', 'ruleset')).nftables.length > 0);
  });

  test('the table is its process’s own, and others’ tables are left alone', async () => {
    topology.run('node', 'nft', 'add table ip theirs');
    topology.run('node', 'nft', 'add chain ip theirs in { type filter hook input priority 0; }');
    await dataplane.sync(serviceMap(service(90, ALL)));
    assert.throws(
      () => topology.run('node', 'nft', 'delete', 'table', 'ip', 'fairlead-ipvs'),
      /not permitted/,
    );
    topology.run('node', 'nft', 'flush', 'chain', 'ip', 'theirs', 'in');
    assert.match(topology.run('node', 'nft', 'list', 'tables'), /table ip theirs/);
    await expectPlaces('pod3', 'TCP', destination('ClusterIP', 'ipv4', 90), ALL, false);
  });

  test('what others change is noticed, named and repaired', async () => {
    await dataplane.remove();
    let noticed = 0;
    const watched = createIpvs({
      families: FAMILIES,
      netns: topology.namespace('node'),
      owned: false,
      onForeignChange: () => noticed++,
    });
    try {
      const map = serviceMap(service(60, ['pod1']));
      await watched.sync(map);
      const next = serviceMap(service(60, ['pod1', 'pod2']));
      await watched.apply(changeBetween(map, next), next);
      topology.run('node', 'nft', 'add', 'table', 'ip', 'other');
      await new Promise((resolve) => setTimeout(resolve, 200));
      assert.equal(noticed, 0, 'neither our own changes nor others’ tables are meant');
      topology.run('node', 'nft', 'flush', 'chain', 'ip', 'fairlead-ipvs', 'input');
      topology.run(
        'node',
        'nft',
        'delete',
        'element',
        'ip6',
        'fairlead-ipvs',
        'services',
        '{ fd00:96::60 . tcp . 80 }',
      );
      topology.run('node', 'nft', 'add', 'element', 'ip', 'fairlead-ipvs', 'addresses', '{ 1.2.3.4 }');
      for (let i = 0; i < 100 && noticed === 0; i++) await new Promise((resolve) => setTimeout(resolve, 20));
      assert.ok(noticed > 0);
      const drifts = (await watched.verify()).map(
        ({ object, kind }) => `${kind} ${object.replace(/ [0-9a-f]{8,}$/, '')}`,
      );
      assert.deepEqual(drifts.sort(), [
        'different table ip fairlead-ipvs chain input',
        'missing table ip6 fairlead-ipvs map services element',
        'unexpected table ip fairlead-ipvs map addresses element',
      ]);
      await watched.sync(next);
      assert.deepEqual(await watched.verify(), []);
      topology.run('node', 'nft', 'flush', 'ruleset');
      assert.equal((await watched.verify()).length, 2);
      await watched.sync(next);
      assert.deepEqual(await watched.verify(), []);
      await watched.remove();
    } finally {
      await watched.close();
    }
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
    await dataplane.sync(serviceMap(service(83, ALL, 'plain', { affinitySeconds: 9 })));
    await dataplane.remove();
    assert.doesNotMatch(topology.run('node', 'nft', 'list', 'tables'), /fairlead/);
    assert.doesNotMatch(
      topology.run('node', 'ip', '-6', 'route', 'show', 'table', 'local'),
      / ::1 dev (v1|eth0)/,
    );
    assert.equal(topology.run('node', 'sysctl', '-n', 'net.ipv4.conf.all.route_localnet').trim(), '0');
  });
});

function hostOf(address: string) {
  return {
    family: 'ipv4',
    bytes: Uint8Array.from(address.split('.').map(Number)),
    prefix: 32,
    text: `${address}/32`,
  } as const;
}
