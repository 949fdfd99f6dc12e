import assert from 'node:assert/strict';
import { execFileSync, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createMap } from '../../kernel/bpf/map.ts';
import { pin, unpin } from '../../kernel/bpf/pin.ts';
import { programsAt } from '../../kernel/bpf/program.ts';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import type { IPFamily } from '../../lib/address.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEvent } from '../flow-event.ts';
import { testAffinityTime, testRestart } from '../testing/affinity-suite.ts';
import { testChangesInPlace, testChangesUnderLoad, testUnwritable } from '../testing/change-suite.ts';
import { openEbpf } from '../testing/open-ebpf.ts';
import { testAddressOfAnotherNode, testReach } from '../testing/reach-suite.ts';
import { testRefusals } from '../testing/refusal-suite.ts';
import { endpoint, frontend, serviceMap } from '../testing/service-map.ts';
import {
  ALL,
  clusterIP,
  createServiceScene,
  everywhere,
  FAMILIES,
  LOCAL,
  TARGET,
  vip,
} from '../testing/service-scene.ts';
import { PATIENCE_MS, type Place, SILENCE_MS } from '../testing/topology.ts';
import { closeMaps, openMaps } from './maps.ts';
import { linkPin, pinDirectory, removePins } from './pins.ts';
import { type Client, makeTestGroup, removeTestGroup, startClient } from './testing/client.ts';
import { attachForeign, isInKernel, openGroup, pinnedNumbers } from './testing/group-programs.ts';

describe('eBPF mode', () => {
  let group: string;
  let pinPath: string;
  let conntrack: ConntrackConnection;
  const clients = new Map<Place, Client>();

  const scene = createServiceScene({
    open: (netns) => openEbpf({ families: FAMILIES, netns, cgroup: group, pinPath }),
    // Connects from inside the control group if the place has a client in it, otherwise from outside.
    ask:
      (fromOutside) =>
      async (from, protocol, address, port, patience = PATIENCE_MS) => {
        const inside = clients.get(from);
        if (!inside) return await fromOutside(from, protocol, address, port, patience);
        const how = protocol === 'TCP' ? 'tcp' : 'udp-connected';
        return (await inside.ask(how, address, port, { timeoutMs: patience })).answer;
      },
  });
  const { service, destination, ask } = scene;

  before(async () => {
    group = makeTestGroup();
    pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
    await scene.start();
    const { namespace } = scene.topology;
    for (const place of ['pod1', 'pod3', 'node'] as const) {
      clients.set(place, await startClient(namespace(place), group));
    }
    conntrack = new ConntrackConnection(namespace('node'));
  });
  after(async () => {
    await scene.close();
    conntrack?.close();
    for (const client of clients.values()) await client.close();
    if (pinPath) removePins(pinPath);
    if (group) await removeTestGroup(group);
  });

  function client(place: Place): Client {
    const found = clients.get(place);
    assert.ok(found, place);
    return found;
  }

  /** Returns true if nf_tables translated a flow to this address. */
  const wasTranslated = (address: string) =>
    conntrack.list(address.includes(':') ? 'ipv6' : 'ipv4', { destination: address }).length > 0;

  testReach(scene, () => {
    test('no packet of a socket in the control group is translated, all others are', () => {
      // Clients inside and outside connect through all of these.
      for (const family of FAMILIES) {
        const flows = conntrack.list(family, { destination: clusterIP(family, 20) });
        const sources = new Set(flows.map(({ original }) => original.source));
        assert.deepEqual([...sources], [scene.topology.address('outside', family)]);
      }
    });
  });
  testAddressOfAnotherNode(scene);

  describe('peers and answers of sockets', () => {
    before(() => scene.sync([...service(25, LOCAL), ...service(26, ['far'])]));
    for (const from of ['pod3', 'node'] as const) {
      test(`a TCP socket of ${from} has the Service as its peer`, async () => {
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
    test('one UDP socket sends to two Services', async () => {
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
    test('a socket connected to an endpoint directly sees the endpoint', async () => {
      const address = scene.topology.address('pod1', 'ipv4');
      const asked = await client('pod3').ask('tcp', address, TARGET);
      assert.equal(asked.peer, `${address} ${TARGET}`);
    });
    test('connections of a process outside the control group are handled by nf_tables', async () => {
      const other = await startClient(scene.topology.namespace('pod3'), null);
      try {
        const asked = await other.ask('tcp', clusterIP('ipv4', 25), 80);
        assert.match(asked.answer, /^pod[12] /);
        assert.ok(wasTranslated(clusterIP('ipv4', 25)));
      } finally {
        await other.close();
      }
    });
  });

  testRefusals(scene);

  for (const from of ['pod3', 'node'] as const) {
    test(`connections of ${from} that the programs refuse are events, while somebody reads them`, async () => {
      await scene.sync(service(27, []));
      const refused = async (family: IPFamily) =>
        assert.equal((await client(from).ask('tcp', clusterIP(family, 27), 80)).answer, 'refused');
      const events: FlowEvent[] = [];
      await refused('ipv4');
      const watch = scene.dataplane.abilities.flows.watch((event) => events.push(event));
      try {
        for (const family of FAMILIES) await refused(family);
        await eventually(
          () => events.length,
          (count) => count >= FAMILIES.length,
        );
      } finally {
        watch.close();
      }
      await refused('ipv4');
      assert.deepEqual(
        events.map(({ kind, client, service, endpoint }) => ({ kind, client, service, endpoint })),
        FAMILIES.map((family) => ({
          kind: 'rejected',
          client: { ip: scene.topology.address(from, family), port: 0 },
          service: { ip: clusterIP(family, 27), port: 80 },
          endpoint: null,
        })),
      );
    });
  }

  test('an endpoint connects to itself through its Service inside its pod', async () => {
    await scene.sync(service(40, ['pod1']));
    await everywhere(async (family, protocol) => {
      const answer = await ask('pod1', protocol, ...destination('ClusterIP', family, 40));
      assert.equal(answer, `pod1 ${scene.topology.address('pod1', family)}`);
    });
  });

  test('session affinity keeps a pod at its endpoint while that serves, despite other changes', async () => {
    const sticky = (...places: Place[]) => service(41, places, 'plain', { affinitySeconds: 100 });
    await scene.sync(sticky(...ALL));
    for (const family of FAMILIES) {
      const [address, port] = destination('ClusterIP', family, 41);
      const first = await ask('pod3', 'TCP', address, port);
      for (let i = 0; i < 15; i++) assert.equal(await ask('pod3', 'TCP', address, port), first);
    }
    const [address, port] = destination('ClusterIP', 'ipv4', 41);
    const first = (await ask('pod3', 'TCP', address, port)).split(' ')[0] as Place;
    const other = ALL.find((place) => place !== first) as Place;
    await scene.apply(sticky(...ALL.filter((place) => place !== other)));
    for (let i = 0; i < 8; i++) assert.equal((await ask('pod3', 'TCP', address, port)).split(' ')[0], first);
    const rest = ALL.filter((place) => place !== first);
    await scene.apply(sticky(...rest));
    const second = (await ask('pod3', 'TCP', address, port)).split(' ')[0] as Place;
    assert.ok(rest.includes(second), `${second} after ${first} was removed`);
    await scene.apply(sticky(...ALL));
    for (let i = 0; i < 8; i++) assert.equal((await ask('pod3', 'TCP', address, port)).split(' ')[0], second);
    await scene.expectVerified();
  });

  testAffinityTime(scene, 'pod3', 'ClusterIP');

  test('with consistent hashing a pod always reaches the same endpoint', async () => {
    await scene.sync(service(43, ALL, 'plain', { balance: 'maglev' }));
    await scene.expectVerified();
    const [address, port] = destination('ClusterIP', 'ipv4', 43);
    const first = await ask('pod3', 'TCP', address, port);
    for (let i = 0; i < 10; i++) assert.equal(await ask('pod3', 'TCP', address, port), first);
  });

  test('connections to an endpoint that is itself a frontend are translated only once', async () => {
    const lb = (family: IPFamily, target: Endpoint) =>
      frontend({
        kind: 'LoadBalancer',
        service: 'outer',
        address: vip(family, 45),
        port: 80,
        endpoints: [target],
      });
    const inner = service(44, ['pod1']);
    await scene.sync([...inner, lb('ipv4', endpoint(clusterIP('ipv4', 44), 80))]);
    // Nothing listens at the cluster IP: a packet that is translated once fails, and one that is translated twice
    // reaches the pod.
    assert.doesNotMatch(await ask('node', 'TCP', vip('ipv4', 45), 80, SILENCE_MS), /^pod1/);
    await scene.apply([
      ...inner.slice(1),
      lb('ipv4', endpoint(scene.topology.address('pod2', 'ipv4'), TARGET)),
    ]);
    assert.match(await ask('node', 'TCP', vip('ipv4', 45), 80), /^pod2/);
    await scene.expectVerified();
  });

  testChangesInPlace(scene, 'maglev');
  testChangesUnderLoad(scene, {
    clients: [
      ['pod3', 85],
      ['node', 86],
      ['pod3', 86],
    ],
    changes: 10,
  });

  test('maps that are too small are replaced by larger ones without interrupting traffic', async () => {
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
    await scene.sync(frontends(3));
    // Deleting large nf_tables maps can block this process, which also runs the servers, for over a second.
    const reach = () => ask('pod3', 'TCP', ...destination('ClusterIP', 'ipv4', 88));
    const first = await reach();
    for (const count of [100, 400, 5]) {
      assert.deepEqual((await scene.apply(frontends(count))).failed, []);
      await scene.expectVerified();
      assert.equal(await reach(), first);
    }
  });

  testRestart(scene);
  test('a restart replaces the programs without attaching them twice', () => {
    assert.equal(groupPrograms().length, 1);
  });

  test('programs keep working after the process is killed', async () => {
    await scene.dataplane.remove();
    await scene.dataplane.close();
    const frontends = service(27, LOCAL);
    const child = fork(fileURLToPath(import.meta.resolve('./testing/programming-process.ts')), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
    });
    await new Promise<void>((resolve, reject) => {
      child.once('exit', (code) => reject(new Error(`ended with ${code}`)));
      child.once('message', () => resolve());
      child.send({
        map: serviceMap(frontends),
        netns: scene.topology.namespace('node'),
        cgroup: group,
        pinPath,
      });
    });
    child.removeAllListeners('exit');
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
    for (const family of FAMILIES) {
      assert.match(await ask('pod3', 'TCP', clusterIP(family, 27), 80), /^pod[12]/);
      assert.ok(!wasTranslated(clusterIP(family, 27)));
    }
    scene.reopen();
    await scene.sync(frontends);
    await scene.expectVerified();
    assert.equal(groupPrograms().length, 1);
  });

  test('changes by other programs are reported and repaired', async () => {
    const frontends = service(60, LOCAL, 'plain', { affinitySeconds: 50 });
    await scene.sync(frontends);
    unpin(linkPin(pinPath, 'connect4'));
    const { maps } = openMaps(pinPath) ?? assert.fail('the maps are pinned');
    const { endpoints } = maps;
    endpoints.update(new Uint8Array(4), new Uint8Array(endpoints.valueSize));
    closeMaps(maps);
    const drifts = await scene.dataplane.verify();
    assert.ok(drifts.some(({ object, kind }) => kind === 'missing' && object.endsWith('link-connect4')));
    await scene.sync(frontends);
    await scene.expectVerified();
    assert.match(await ask('pod3', 'TCP', clusterIP('ipv4', 60), 80), /^pod[12]/);
  });

  test('pins of another release are removed', async () => {
    const folder = join(pinPath, 'v0');
    mkdirSync(folder, { recursive: true });
    const program = openGroup(group);
    const map = createMap({ name: 'old', kind: 'array', keySize: 4, valueSize: 4, maxEntries: 1 });
    pin(map.fd, join(folder, 'map-old'));
    pin(program.linkFd, join(folder, 'link-connect4'));
    map.close();
    try {
      assert.equal(groupPrograms().length, 2);
      await scene.sync(service(61, LOCAL));
      assert.ok(!existsSync(folder));
      assert.equal(groupPrograms().length, 1, 'its program is detached though its link is open');
    } finally {
      program.close();
    }
  });

  testUnwritable(scene);

  test('removing the mode keeps only the objects of other programs', async () => {
    const foreign = openGroup(group);
    await scene.sync(service(83, ALL, 'plain', { affinitySeconds: 9 }));
    const device = attachForeign(scene.topology.namespace('node'), 'eth0');
    const theirs = createMap({ name: 'theirs', kind: 'array', keySize: 4, valueSize: 4, maxEntries: 1 });
    pin(theirs.fd, `${pinPath}/theirs`);
    theirs.close();
    try {
      assert.equal(groupPrograms().length, 2);
      const numbers = pinnedNumbers(pinDirectory(pinPath));
      assert.ok(numbers.programs.length >= 11 && numbers.maps.length >= 12);
      await scene.dataplane.remove();
      await scene.dataplane.close();
      scene.reopen();
      assert.deepEqual(groupPrograms(), [foreign.programId]);
      assert.ok(!existsSync(pinDirectory(pinPath)));
      // The kernel frees them shortly after their last user.
      const left = () => [
        ...numbers.programs.filter((id) => isInKernel('program', id)),
        ...numbers.maps.filter((id) => isInKernel('map', id)),
      ];
      assert.ok(isInKernel('program', foreign.programId));
      for (let i = 0; i < 50 && left().length > 0; i++)
        await new Promise((resolve) => setTimeout(resolve, 100));
      assert.deepEqual(left(), []);
      assert.doesNotMatch(scene.topology.run('node', 'nft', 'list', 'tables'), /fairlead/);
      assert.ok(device.isAttached());
      assert.ok(existsSync(`${pinPath}/theirs`), 'the file system is kept');
    } finally {
      device.close();
      foreign.close();
      unpin(`${pinPath}/theirs`);
    }
    removePins(pinPath);
    assert.ok(!existsSync(pinPath), 'the file system that was mounted for the pins is unmounted');
  });

  test('a second agent at the same control group is refused, with the cause, until the first is gone', async () => {
    scene.reopen();
    await scene.sync(service(91, LOCAL));
    const others = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
    const netns = scene.topology.namespace('pod3');
    const second = openEbpf({ families: FAMILIES, netns, cgroup: group, pinPath: others });
    try {
      const refused = {
        code: 'group-in-use',
        message: /another agent's programs are attached to the control group/,
      };
      await assert.rejects(second.sync(serviceMap([])), refused);
      assert.equal(groupPrograms().length, 1);
      assert.ok(!existsSync(others));
      assert.equal(
        execFileSync('ip', ['netns', 'exec', netns, 'nft', 'list', 'tables'], { encoding: 'utf8' }),
        '',
      );
      // A new process of the first agent is not another one.
      await scene.dataplane.close();
      scene.reopen();
      await scene.sync(service(91, LOCAL));
      await scene.dataplane.remove();
      await second.sync(serviceMap([]));
      assert.equal(groupPrograms().length, 1);
    } finally {
      await second.remove();
      await second.close();
      removePins(others);
    }
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
