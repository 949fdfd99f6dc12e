import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import type { Pod } from '../../src/kube/types.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { type Cluster, spawnFairlead } from './cluster.ts';
import { type ClusterPlace, clusterPlaces, packetSockets, runIn, wirePlace } from './cluster-places.ts';
import { type FieldReader, programMissing, readWithTshark } from './tshark.ts';

/** Captures all packets into a file while `send` runs. */
async function captureWhile(
  cluster: Cluster,
  places: readonly ClusterPlace[],
  file: string,
  send: () => Promise<unknown>,
): Promise<void> {
  const before = places.map(packetSockets);
  const child = spawnFairlead(cluster.stateRoot, ['capture', 'all', '-w', file, '--name', cluster.name]);
  let text = '';
  child.stderr?.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const closed = once(child, 'close');
  try {
    await eventually(() => places.every((place, index) => packetSockets(place) > (before[index] ?? 0)));
    await send();
    // What was captured is written while the capture goes on.
    const size = readFileSync(file).length;
    await eventually(() => readFileSync(file).length > size);
  } finally {
    child.kill('SIGINT');
  }
  assert.deepEqual(await closed, [0, null], text);
}

const FIELDS = [
  ...['frame.interface_name', 'frame.interface_description', 'frame.packet_flags_direction', 'frame.comment'],
  ...['frame.time_epoch', 'frame.protocols', 'frame.len', 'frame.cap_len'],
  ...['ip.src', 'ip.dst', 'ipv6.src', 'ipv6.dst', 'tcp.srcport', 'tcp.dstport'],
  ...['tcp.seq_raw', 'tcp.ack_raw', 'tcp.flags', 'tcp.len'],
] as const;

/** Captures requests of a cluster with the Service hello, and compares what tshark reads in the file. */
export function testCapturedFile(
  scene: () => { readonly cluster: Cluster; readonly pods: readonly Pod[] },
): void {
  describe('tshark reads what a capture writes', { skip: programMissing('tshark', 'capinfos') }, () => {
    let cluster: Cluster;
    let pods: readonly Pod[];
    let places: readonly ClusterPlace[];
    let file: string;
    let packets: FieldReader<(typeof FIELDS)[number]>[];
    before(async () => {
      ({ cluster, pods } = scene());
      places = [...clusterPlaces(cluster, pods), wirePlace(cluster)];
      file = join(cluster.stateRoot, 'all.pcapng');
      const node = cluster.state().nodes[0]?.addresses[0] ?? '';
      await captureWhile(cluster, places, file, async () => {
        const counts = await Promise.all([
          cluster.request('client', 'http://hello', '--count', '9', '-4'),
          cluster.request('client', 'http://hello', '--count', '9', '-6'),
          cluster.request('client', 'udp://hello:80', '--count', '9'),
          cluster.request('outside', `http://${node}:30080`, '--count', '9'),
        ]);
        for (const { failures } of counts) assert.deepEqual(failures, {});
      });
      packets = await readWithTshark(file, FIELDS);
    });

    test('no packet is malformed, cut or out of order', async () => {
      const malformed = await readWithTshark(file, ['frame.number', 'frame.protocols'], {
        filter: '_ws.malformed',
      });
      assert.deepEqual(
        malformed.map((value) => value('frame.protocols')),
        [],
      );
      assert.ok(packets.length > 500, `${packets.length} packets`);
      for (const value of packets) assert.deepEqual(value('frame.cap_len'), value('frame.len'));
      const times = packets.map((value) => value('frame.time_epoch')[0] ?? '');
      assert.deepEqual(times, times.toSorted());
      const summary = execFileSync('capinfos', ['-M', file], { encoding: 'utf8' });
      assert.match(summary, /File type: +pcapng/);
      assert.match(summary, /File timestamp precision: +nanoseconds/);
    });

    test('each device is an interface with its name and a description', () => {
      const summary = execFileSync('capinfos', ['-M', file], { encoding: 'utf8' });
      const listed = summary.split(/^Interface #[0-9]+ info:$/m).slice(1);
      const described = listed.map((text) => {
        const field = (name: string) => new RegExp(`^ +${name} = (.*)$`, 'm').exec(text)?.[1];
        assert.equal(field('Encapsulation'), 'Ethernet (1 - ether)');
        return `${field('Name')}: ${field('Description')}`;
      });
      assert.deepEqual(described.sort(), expectedDevices(places, pods).sort());
    });

    test('addresses have the names of pods, nodes and Services', async () => {
      // -N n without a name server: only names in the file are known.
      const fields = ['ip.src', 'ip.src_host', 'ipv6.src', 'ipv6.src_host'] as const;
      const named = await readWithTshark(file, fields, { filter: 'tcp or udp', options: ['-N', 'n'] });
      const seen = new Map<string, string>();
      for (const value of named) {
        for (const [address, host] of [
          ['ip.src', 'ip.src_host'],
          ['ipv6.src', 'ipv6.src_host'],
        ] as const) {
          for (const [index, ip] of value(address).entries()) seen.set(ip, value(host)[index] ?? '');
        }
      }
      const service = JSON.parse(await cluster.ask('get', 'service', 'hello', '-o', 'json')) as {
        spec: { clusterIPs: string[] };
      };
      const expected = [
        ...pods.flatMap(({ metadata, status, spec }) =>
          spec?.hostNetwork
            ? []
            : (status?.podIPs ?? []).map(({ ip }) => [ip, `${metadata?.namespace}/${metadata?.name}.pod`]),
        ),
        ...service.spec.clusterIPs.map((ip) => [ip, 'default/hello.svc']),
        ...cluster.state().nodes.flatMap(({ name, addresses }) => addresses.map((ip) => [ip, name])),
        ...cluster.state().outsideAddresses.map((ip) => [ip, 'outside']),
      ].flatMap(([ip, name]) => (ip !== undefined && seen.has(ip) ? [[ip, name] as const] : []));
      assert.ok(expected.length >= 10, `${expected}`);
      assert.deepEqual(
        expected.map(([ip]) => [ip, seen.get(ip)]),
        expected,
      );
    });

    test('each packet has its direction, and a comment where it was translated since the previous device', () => {
      const seen = new Map<string, string>();
      let translated = 0;
      for (const value of packets) {
        const protocols = value('frame.protocols')[0]?.split(':') ?? [];
        // An ICMP error repeats a segment.
        if (!protocols.includes('tcp') || protocols.some((name) => name.startsWith('icmp'))) continue;
        const isV6 = protocols.lastIndexOf('ipv6') > protocols.lastIndexOf('ip');
        const end = (side: 'src' | 'dst') => {
          const ip = value(`${isV6 ? 'ipv6' : 'ip'}.${side}`).at(-1) ?? '';
          return `${isV6 ? `[${ip}]` : ip}:${value(`tcp.${side}port`)[0]}`;
        };
        const key = (['tcp.seq_raw', 'tcp.ack_raw', 'tcp.flags', 'tcp.len'] as const)
          .flatMap(value)
          .join(' ');
        const now = `${end('src')} → ${end('dst')}`;
        const previous = seen.get(key) ?? now;
        seen.set(key, now);
        const where = `${value('frame.interface_name')[0]}: ${now}`;
        const comment = previous === now ? '' : `translated from ${previous}`;
        assert.equal(value('frame.comment')[0], comment, where);
        if (comment !== '') translated++;
      }
      assert.ok(translated >= 50, `${translated} translations`);
      const [client] = pods.filter(({ metadata }) => metadata?.name === 'client');
      const own = new Set(client?.status?.podIPs?.map(({ ip }) => ip));
      for (const value of packets) {
        const direction = value('frame.packet_flags_direction')[0];
        assert.ok(direction === INBOUND || direction === OUTBOUND);
        if (value('frame.interface_name')[0] !== 'pod default/client eth0') continue;
        const source = value('ip.src')[0] || value('ipv6.src')[0];
        // Both sides send from addresses of the link (Neighbour Discovery), which the API does not list.
        if (!source || source.startsWith('fe80:') || source === '::') continue;
        assert.equal(direction, own.has(source) ? OUTBOUND : INBOUND, source);
      }
    });
  });
}

/** Directions of packet flags (pcapng, epb_flags), as tshark prints them. */
const INBOUND = '0x00000001';
const OUTBOUND = '0x00000002';

interface ListedLink {
  readonly ifindex: number;
  readonly ifname: string;
  readonly master?: string;
  readonly link_index?: number;
  readonly linkinfo?: { readonly info_kind?: string };
}

/** The names and descriptions of all devices, by what `ip` lists. */
function expectedDevices(places: readonly ClusterPlace[], pods: readonly Pod[]): string[] {
  const links = new Map(
    places.map((place) => [
      place,
      JSON.parse(runIn(place, 'ip', '-details', '-json', 'link')) as ListedLink[],
    ]),
  );
  const podOf = (node: string, index: number) =>
    places.find((place) => {
      const pod = pods.find(({ metadata }) => place.name === `pod ${metadata?.namespace}/${metadata?.name}`);
      const isPeer = ({ ifname, link_index }: ListedLink) => ifname === 'eth0' && link_index === index;
      return pod?.spec?.nodeName === node && links.get(place)?.some(isPeer);
    });
  return [...links].flatMap(([{ name }, devices]) =>
    devices
      // The ports of the wire do not belong to the control plane.
      .filter(({ master }) => name !== 'control-plane' || master === undefined)
      .map(({ ifname, ifindex, linkinfo }) => {
        const isNode = name.startsWith('node-');
        const kind = linkinfo?.info_kind;
        const pod = isNode && kind === 'veth' ? podOf(name, ifindex) : undefined;
        const words =
          ifname === 'lo'
            ? 'loopback'
            : !isNode
              ? ifname
              : pod
                ? `veth of ${pod.name.replace('pod ', '')}`
                : ifname === 'eth0'
                  ? 'uplink eth0'
                  : kind === 'bridge'
                    ? `bridge ${ifname}`
                    : kind === 'vxlan'
                      ? `VXLAN ${ifname}`
                      : ifname;
        return `${name} ${ifname}: ${words} in ${name}`;
      }),
  );
}
