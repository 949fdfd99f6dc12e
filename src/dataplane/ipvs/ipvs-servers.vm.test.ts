import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { changeBetween, frontend, NODE, serviceMap } from '../testing/service-map.ts';
import type { Place } from '../testing/topology.ts';
import { openUdpFlow } from '../testing/udp-flow.ts';
import { createSchedulerProbe } from './scheduler-probe.ts';
import { SCHEDULERS } from './schedulers.ts';
import { ECHO, PLACES, serverScene, TARGET, VIP } from './testing/server-scene.ts';

const OUTER = '203.0.113.50';

describe('virtual servers', () => {
  const scene = serverScene();
  const { clock, start, sync, apply, at, clusterIP, withScheduler, list, ask, connect } = scene;

  test('ipvsadm lists Services by address and node ports by mark', async () => {
    const endpoints = at(TARGET, 'pod1', 'far');
    const shared = { service: 'web', endpoints } as const;
    const report = await sync([
      frontend({ ...shared, kind: 'ClusterIP', address: VIP, port: 80, affinitySeconds: 300 }),
      frontend({ ...shared, kind: 'NodePort', address: null, port: 30_080 }),
      frontend({ ...shared, kind: 'LoadBalancer', address: OUTER, port: 80, policy: 'external-local' }),
      frontend({
        ...shared,
        kind: 'ClusterIP',
        address: '10.96.0.51',
        port: 53,
        protocol: 'UDP',
        endpoints: [],
      }),
    ]);
    assert.deepEqual(report.failed, []);
    const listed = list();
    const reals = (name: string) => [...(listed.get(name)?.reals.keys() ?? [])].sort();
    assert.deepEqual([...listed.keys()].filter((name) => !name.startsWith('FWM')).sort(), [
      `TCP ${VIP}:80`,
      `TCP ${OUTER}:80`,
    ]);
    assert.equal(listed.get(`TCP ${VIP}:80`)?.options, 'persistent 300');
    assert.deepEqual(reals(`TCP ${VIP}:80`), ['10.244.1.11:8080', '10.244.2.21:8080']);
    assert.deepEqual(reals(`TCP ${OUTER}:80`), ['10.244.1.11:8080', '10.244.2.21:8080']);
    const marked = [...listed.keys()].filter((name) => name.startsWith('FWM')).map(reals);
    assert.deepEqual(
      marked.map((list) => list.length).sort(),
      [1, 2],
      'the node port, and the local endpoints of the load balancer',
    );
  });

  for (const name of Object.keys(SCHEDULERS)) {
    test(`scheduler ${name} serves, even while an endpoint drains`, async () => {
      await sync([withScheduler(clusterIP(PLACES), name)]);
      assert.equal(list().get(`TCP ${VIP}:80`)?.scheduler, name);
      for (let i = 0; i < 8; i++) assert.ok(PLACES.includes((await ask('pod3')) as Place));
      await apply([withScheduler(clusterIP(['pod1', 'far']), name)]);
      for (let i = 0; i < 8; i++) assert.match((await ask('outside')) ?? '', /^(pod1|far)$/);
    });
  }

  test('a scheduler is changed in place', async () => {
    await sync([clusterIP(PLACES)]);
    await apply([withScheduler(clusterIP(PLACES), 'wlc')]);
    assert.equal(list().get(`TCP ${VIP}:80`)?.scheduler, 'wlc');
  });

  test('an unknown scheduler is an error naming it; the Service uses the default one', async () => {
    const { failed } = await sync([withScheduler(clusterIP(['pod1']), 'fastest')]);
    assert.equal(failed.length, 1);
    assert.match(failed[0]?.error.message ?? '', /no such IPVS scheduler: "fastest"; rr is used instead/);
    assert.equal(await ask('pod3'), 'pod1');
  });

  test('an unknown default scheduler is an error with the names of the known ones', async () => {
    await assert.rejects(sync([], { ...NODE, ipvsScheduler: 'fastest' }), {
      code: 'no-scheduler',
      hint: /rr, wrr, lc/,
    });
  });

  test('the check of a scheduler fails at once, naming a missing kernel module', async () => {
    await scene.dataplane.requireScheduler('wlc');
    await assert.rejects(scene.dataplane.requireScheduler('fastest'), {
      code: 'no-scheduler',
      object: 'fastest',
    });
    const connection = new IpvsConnection(scene.topology.namespace('node'));
    try {
      const probe = createSchedulerProbe(connection, ['ipv4', 'ipv6'], 0xfa1f_ffff, ['rr', 'elsewhere']);
      assert.equal(await probe.check('rr'), null);
      const error = await probe.check('elsewhere');
      assert.equal(error?.code, 'no-scheduler');
      assert.equal(error?.object, 'module ip_vs_elsewhere');
      assert.match(
        `${error?.message} ${error?.hint}`,
        /does not have the IPVS scheduler elsewhere .*modprobe ip_vs_elsewhere/,
      );
    } finally {
      connection.close();
    }
    assert.equal(list().size, 0, 'the check leaves no server behind');
  });

  test('a removed endpoint keeps its open connections and accepts no new ones', async () => {
    await sync([clusterIP(['pod1', 'pod2'], { target: ECHO })]);
    const connections = [await connect('pod3', VIP, 80), await connect('pod3', VIP, 80)];
    const gone = connections.find(({ place }) => place === 'pod1');
    assert.ok(gone);
    await apply([clusterIP(['pod2'], { target: ECHO })]);
    assert.equal(list().get(`TCP ${VIP}:80`)?.reals.get('10.244.1.11:9000')?.weight, 0);
    for (let i = 0; i < 5; i++) assert.equal((await connect('outside', VIP, 80)).place, 'pod2');
    clock.advance(60_000);
    assert.deepEqual(await scene.dataplane.verify(), []);
    assert.ok(await gone.says('still here'));
  });

  test('an endpoint that returns while it drains keeps its open connections', async () => {
    await sync([clusterIP(['pod1', 'pod2'], { target: ECHO })]);
    const connections = [await connect('pod3', VIP, 80), await connect('pod3', VIP, 80)];
    await apply([clusterIP(['pod2'], { target: ECHO })]);
    await apply([clusterIP(['pod1', 'pod2'], { target: ECHO })]);
    assert.equal(list().get(`TCP ${VIP}:80`)?.reals.get('10.244.1.11:9000')?.weight, 1);
    for (const connection of connections) assert.ok(await connection.says('still here'));
  });

  test('an endpoint without connections is removed at the next check', async () => {
    await sync([clusterIP(PLACES)]);
    await apply([clusterIP(['pod1'])]);
    assert.equal(list().get(`TCP ${VIP}:80`)?.reals.size, 3);
    clock.advance(2000);
    await scene.dataplane.verify();
    assert.deepEqual([...(list().get(`TCP ${VIP}:80`)?.reals.keys() ?? [])], ['10.244.1.11:8080']);
  });

  test('draining ends after its timeout, and at once for endpoints that no longer exist', async () => {
    await sync([clusterIP(['pod1', 'pod2'], { target: ECHO })]);
    await connect('pod3', VIP, 80);
    await connect('pod3', VIP, 80);
    await apply([clusterIP([], { target: ECHO })]);
    assert.equal(list().get(`TCP ${VIP}:80`)?.reals.size, 2);
    await scene.dataplane.abilities.connections.end([
      { ip: scene.topology.address('pod1', 'ipv4'), port: ECHO },
    ]);
    assert.deepEqual([...(list().get(`TCP ${VIP}:80`)?.reals.keys() ?? [])], ['10.244.1.12:9000']);
    clock.advance(3_600_000);
    await scene.dataplane.verify();
    // The next check for drained servers.
    clock.advance(2000);
    await scene.dataplane.verify();
    assert.equal(list().has(`TCP ${VIP}:80`), false);
    assert.deepEqual(await scene.dataplane.verify(), []);
  });

  test('a deleted Service keeps its open connections and rejects new ones until they are closed', async () => {
    await sync([clusterIP(['pod1'], { target: ECHO })]);
    const connection = await connect('pod3', VIP, 80);
    await apply([]);
    assert.equal((await connect('pod3', VIP, 80)).place, 'ECONNREFUSED');
    assert.ok(await connection.says('still here'));
    assert.match(
      scene.topology.run('node', 'ip', '-br', 'addr', 'show', 'dev', 'fairlead-ipvs'),
      /10\.96\.0\.50/,
    );
    await scene.dataplane.abilities.connections.end([
      { ip: scene.topology.address('pod1', 'ipv4'), port: ECHO },
    ]);
    assert.equal(list().size, 0);
    assert.doesNotMatch(
      scene.topology.run('node', 'ip', '-br', 'addr', 'show', 'dev', 'fairlead-ipvs'),
      /10\.96\.0\.50/,
    );
    assert.deepEqual(await scene.dataplane.verify(), []);
  });

  test('UDP does not drain: its flows go to another endpoint', async () => {
    const frontends = (places: readonly Place[]) => [clusterIP(places, { protocol: 'UDP' })];
    await sync(frontends(['pod1']));
    assert.equal(await ask('pod3', VIP, 80, 'UDP'), 'pod1');
    await apply(frontends(['pod2']));
    assert.deepEqual([...(list().get(`UDP ${VIP}:80`)?.reals.keys() ?? [])], ['10.244.1.12:8080']);
    assert.equal(await ask('pod3', VIP, 80, 'UDP'), 'pod2');
  });

  test('a UDP flow keeps an endpoint that terminates while it serves, and then goes to another one', async () => {
    const dns = (spared: readonly Place[], ...places: Place[]) => [
      clusterIP(places, { protocol: 'UDP', spared }),
    ];
    await sync(dns([], 'pod1'));
    const flow = await openUdpFlow(scene.topology.namespace('pod3'), VIP, 80);
    try {
      assert.equal(await flow.ask(), 'pod1');
      await apply(dns(['pod1'], 'pod2'));
      assert.equal(await flow.ask(), 'pod1');
      for (let i = 0; i < 3; i++) assert.equal(await ask('pod3', VIP, 80, 'UDP'), 'pod2', 'a new flow');
      // The checks for endpoints without connections do not remove it.
      clock.advance(60_000);
      assert.deepEqual(await scene.dataplane.verify(), []);
      assert.equal(await flow.ask(), 'pod1');
      await scene.dataplane.close();
      start();
      await sync(dns(['pod1'], 'pod2'));
      assert.equal(await flow.ask(), 'pod1', 'after a restart');
      await apply(dns([], 'pod2'));
      // The kernel ends the flow's connection in a work queue (expire_nodest_conn). A datagram that comes before that ends it,
      // and is dropped (ip_vs_in_hook): clients repeat it.
      await eventually(flow.ask, (place) => place === 'pod2');
    } finally {
      flow.close();
    }
  });

  test('a restart adopts open connections, marks and draining endpoints', async () => {
    const shared = { service: 'web', endpoints: at(ECHO, 'pod1', 'pod2') } as const;
    const frontends = [
      clusterIP(['pod1', 'pod2'], { target: ECHO }),
      frontend({ ...shared, kind: 'NodePort', address: null, port: 30_090 }),
      frontend({ ...shared, kind: 'NodePort', address: null, port: 30_091, affinitySeconds: 60 }),
      frontend({ ...shared, kind: 'LoadBalancer', address: OUTER, port: 80, policy: 'external-local' }),
    ];
    await sync(frontends);
    const connections = [
      await connect('pod3', VIP, 80),
      await connect('pod3', VIP, 80),
      await connect('outside', scene.topology.address('node', 'ipv4'), 30_090),
      await connect('outside', scene.topology.address('node', 'ipv4'), 30_091),
      await connect('outside', OUTER, 80),
    ];
    await apply([clusterIP(['pod1'], { target: ECHO }), ...frontends.slice(1)]);
    const before = [...list().keys()].sort();
    await scene.dataplane.close();
    for (const connection of connections) assert.ok(await connection.says('without an agent'));
    start();
    await sync([clusterIP(['pod1'], { target: ECHO }), ...frontends.slice(1)]);
    assert.deepEqual([...list().keys()].sort(), before);
    assert.equal(list().get(`TCP ${VIP}:80`)?.reals.get('10.244.1.12:9000')?.weight, 0);
    assert.deepEqual(await scene.dataplane.verify(), []);
    for (const connection of connections) assert.ok(await connection.says('with another one'));
  });

  test('removing the mode keeps virtual servers of other programs', async () => {
    const ours = [clusterIP(['pod1']), clusterIP(['pod1'], { protocol: 'UDP' })];
    const add = (...words: string[]) => scene.topology.run('node', 'ipvsadm', ...words);
    add('-A', '-t', '198.51.100.1:80', '-s', 'wlc');
    add('-a', '-t', '198.51.100.1:80', '-r', '10.244.1.11:8080', '-m', '-w', '5');
    add('-A', '-f', '77', '-s', 'sh');
    const theirs = list();
    await sync(ours);
    await apply([]);
    await sync(ours);
    for (const [name, server] of theirs) assert.deepEqual(list().get(name), server);
    assert.deepEqual(await scene.dataplane.verify(), []);
    await scene.dataplane.remove();
    assert.deepEqual(list(), theirs);
    assert.doesNotMatch(scene.topology.run('node', 'ip', 'link'), /fairlead/);
    assert.doesNotMatch(scene.topology.run('node', 'nft', 'list', 'tables'), /fairlead/);
    assert.equal(
      scene.topology.run('node', 'sysctl', '-n', 'net.ipv4.vs.conntrack').trim(),
      '1',
      'other programs may need it',
    );
    add('-C');
    await scene.dataplane.remove();
  });

  test('a virtual server of another program at a Service’s address is reported and kept', async () => {
    const add = (...words: string[]) => scene.topology.run('node', 'ipvsadm', ...words);
    const theirs = () => [...list()].filter(([, { scheduler }]) => scheduler === 'sh');
    add('-A', '-t', `${VIP}:80`, '-s', 'sh');
    add('-a', '-t', `${VIP}:80`, '-r', '10.99.99.99:7', '-m', '-w', '5');
    const first = theirs();
    const wanted = [clusterIP(['pod1']), clusterIP(['pod1'], { port: 81 })];
    for (let i = 0; i < 2; i++) {
      const { failed } = await sync(wanted);
      assert.deepEqual(
        failed.map(({ error }) => error.message),
        [`another program already has the virtual server TCP ${VIP}:80`],
      );
      assert.deepEqual(theirs(), first);
      assert.equal(await ask('pod3', VIP, 81), 'pod1');
      assert.deepEqual(await scene.dataplane.verify(), []);
    }
    // A server that is created later, at an address of the mode's interface.
    add('-A', '-t', `${VIP}:82`, '-s', 'sh');
    const both = theirs();
    const more = serviceMap([...wanted, clusterIP(['pod1'], { port: 82 })]);
    const { failed } = await scene.dataplane.apply(changeBetween(scene.map, more), more);
    assert.match(failed.map(({ error }) => error.message).join(), /virtual server TCP 10\.96\.0\.50:82/);
    assert.deepEqual(theirs(), both);
    await scene.dataplane.sync(more);
    assert.deepEqual(theirs(), both);
    assert.deepEqual(await scene.dataplane.verify(), []);
    add('-D', '-t', `${VIP}:82`);
    assert.deepEqual((await scene.dataplane.sync(more)).failed.length, 1);
    assert.equal(await ask('pod3', VIP, 82), 'pod1');
    await scene.dataplane.remove();
    assert.deepEqual([...list()], first);
    add('-C');
  });

  test('an address that the node already has is not changed, and its Service works', async () => {
    const own = '192.0.2.10';
    const frontends = [
      frontend({ kind: 'ExternalIP', service: 'web', address: own, port: 80, endpoints: at(TARGET, 'pod1') }),
    ];
    await sync(frontends);
    assert.equal(await ask('outside', own), 'pod1');
    assert.equal(await ask('node', own), 'pod1');
    assert.doesNotMatch(
      scene.topology.run('node', 'ip', '-br', 'addr', 'show', 'dev', 'fairlead-ipvs'),
      /192\.0\.2/,
    );
    assert.equal(await scene.topology.ask('outside', 'TCP', own, 81), 'refused');
    assert.deepEqual(await scene.dataplane.verify(), []);
    await scene.dataplane.remove();
    assert.match(scene.topology.run('node', 'ip', '-br', 'addr'), /192\.0\.2\.10/);
  });

  test('an address that appears on another device of the node is removed from the interface', async () => {
    await scene.dataplane.close();
    let noticed = 0;
    start({ onForeignChange: () => noticed++ });
    const frontends = [
      frontend({
        kind: 'LoadBalancer',
        service: 'web',
        address: OUTER,
        port: 80,
        endpoints: at(TARGET, 'pod1'),
      }),
    ];
    await sync(frontends);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(noticed, 0);
    scene.topology.configure('node', `addr add ${OUTER}/32 dev eth0`);
    try {
      for (let i = 0; i < 100 && noticed === 0; i++) await new Promise((resolve) => setTimeout(resolve, 10));
      assert.ok(noticed > 0);
      assert.equal((await scene.dataplane.verify()).length, 1);
      await sync(frontends);
      assert.deepEqual(await scene.dataplane.verify(), []);
      assert.equal(await ask('outside', OUTER), 'pod1');
    } finally {
      scene.topology.configure('node', `addr del ${OUTER}/32 dev eth0`);
    }
    await sync(frontends);
    assert.deepEqual(await scene.dataplane.verify(), []);
    assert.equal(await ask('outside', OUTER), 'pod1');
  });

  test('the node’s ports and node ports do not answer on Services’ addresses', async () => {
    await scene.topology.serve('node', 7070);
    await sync([
      clusterIP(['pod1']),
      frontend({
        kind: 'LoadBalancer',
        service: 'web',
        address: OUTER,
        port: 80,
        endpoints: at(TARGET, 'pod1'),
      }),
      frontend({
        kind: 'NodePort',
        service: 'web',
        address: null,
        port: 30_070,
        endpoints: at(TARGET, 'pod1'),
      }),
    ]);
    assert.equal(await ask('outside', '192.0.2.10', 7070), 'node');
    for (const address of [VIP, OUTER]) {
      for (const from of ['outside', 'pod3', 'node'] as const) {
        for (const port of [7070, 30_070]) {
          for (const protocol of ['TCP', 'UDP'] as const) {
            assert.equal(await ask(from, address, port, protocol), 'refused', `${from} → ${address}:${port}`);
          }
        }
      }
    }
  });

  test('Services’ addresses are not announced by ARP or ND', async () => {
    const six = 'fd00:113::50';
    await sync([
      frontend({
        kind: 'LoadBalancer',
        service: 'web',
        address: OUTER,
        port: 80,
        endpoints: at(TARGET, 'pod1'),
      }),
      frontend({ kind: 'LoadBalancer', service: 'web', address: six, port: 80, endpoints: [] }),
    ]);
    assert.equal(await ask('outside', OUTER), 'pod1');
    scene.topology.configure('outside', `route add ${OUTER}/32 dev eth0`, `route add ${six}/128 dev eth0`);
    try {
      assert.notEqual(await ask('outside', OUTER), 'pod1');
      await ask('outside', six);
      assert.doesNotMatch(scene.topology.run('outside', 'ip', 'neigh', 'show', OUTER), /lladdr/);
      assert.doesNotMatch(scene.topology.run('outside', 'ip', 'neigh', 'show', six), /lladdr/);
    } finally {
      scene.topology.configure('outside', `route del ${OUTER}/32 dev eth0`, `route del ${six}/128 dev eth0`);
    }
    assert.match(scene.topology.run('node', 'ip', 'route', 'get', '192.0.2.20'), /src 192\.0\.2\.10/);
  });

  test('SCTP is balanced and masqueraded', async () => {
    const program = (text: string) => ['python3', '-c', text];
    const served = `
import socket, os
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
s.bind(("0.0.0.0", 3868)); s.listen(8)
if os.fork() == 0:
    os.setsid()
    for fd in (0, 1, 2): os.close(fd)
    s.settimeout(20)
    for _ in range(2):
        c, peer = s.accept()
        c.sendall(("%s" % peer[0]).encode()); c.close()
`;
    scene.topology.run('pod1', ...program(served));
    await sync([clusterIP(['pod1'], { protocol: 'SCTP', port: 3868, target: 3868 })]);
    const asked = `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
s.settimeout(5); s.connect(("${VIP}", 3868)); print(s.recv(100).decode())
`;
    assert.equal(
      scene.topology.run('pod3', ...program(asked)).trim(),
      scene.topology.address('pod3', 'ipv4'),
    );
    assert.match(scene.topology.run('outside', ...program(asked)).trim(), /^(10\.244\.1\.1|192\.0\.2\.10)$/);
    assert.equal(list().get(`SCTP ${VIP}:3868`)?.reals.size, 1);
  });

  test('configured timeouts are set', async () => {
    await scene.dataplane.close();
    start({ timeouts: { udp: 77 } });
    const [tcp] = timeouts();
    await sync([]);
    assert.deepEqual(timeouts(), [tcp, '120', '77']);
  });

  const timeouts = () =>
    /Timeout.*: (\d+) (\d+) (\d+)/.exec(scene.topology.run('node', 'ipvsadm', '-L', '--timeout'))?.slice(1) ??
    [];

  test('explain names the kernel objects that a packet passes', async () => {
    await sync([clusterIP(PLACES)]);
    const packet = {
      source: '192.0.2.20',
      sourceClass: 'external',
      destination: VIP,
      port: 80,
      protocol: 'TCP',
    } as const;
    const steps = scene.dataplane.locate([...scene.map.frontends.values()][0] ?? assert.fail(), packet);
    assert.deepEqual(
      steps.map(({ object }) => object),
      [
        `ip: address ${VIP} of fairlead-ipvs`,
        `nft: table ip fairlead-ipvs, chain input → chain from-external, map services, element ${VIP} . tcp . 80`,
        `ipvsadm: virtual server TCP ${VIP}:80`,
      ],
    );
    assert.match(steps.at(-1)?.effect ?? '', /scheduler rr: one of 3: 10\.244\.1\.11:8080/);
  });
});
