import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import {
  ALL,
  createServiceScene,
  everywhere,
  FAMILIES,
  LOCAL,
  type Transport,
} from '../testing/service-scene.ts';
import { createEbpf } from './ebpf.ts';
import { pinnedLinks, removePins } from './pins.ts';
import { makeTestGroup, removeTestGroup } from './testing/client.ts';
import { attachForeign } from './testing/group-programs.ts';

const KINDS = ['NodePort', 'LoadBalancer'] as const;
const NUMBER: Readonly<Record<Transport, number>> = { TCP: 6, UDP: 17 };

for (const attachment of ['tcx', 'clsact'] as const) {
  describe(`eBPF mode at the uplink, attached by ${attachment}`, () => {
    let group: string;
    let pinPath: string;
    let conntrack: ConntrackConnection;
    const scene = createServiceScene({
      open: (netns) =>
        createEbpf({ families: FAMILIES, netns, cgroup: group, pinPath, attachment, uplink: 'eth0' }),
    });
    const { service, destination } = scene;
    const uplinkLinks = () => pinnedLinks(pinPath).filter((name) => name.startsWith('uplink-'));
    const filters = () =>
      scene.topology.run('node', 'tc', 'filter', 'show', 'dev', 'eth0', 'ingress') +
      scene.topology.run('node', 'tc', 'filter', 'show', 'dev', 'eth0', 'egress');

    before(async () => {
      group = makeTestGroup();
      pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
      await scene.start();
      conntrack = new ConntrackConnection(scene.topology.namespace('node'));
    });
    after(async () => {
      await scene.dataplane.remove();
      await scene.close();
      conntrack?.close();
      if (pinPath) removePins(pinPath);
      if (group) await removeTestGroup(group);
    });

    /** Whether nf_tables translated anything that was sent to this address. */
    const wasTranslated = ([address, port]: readonly [string, number], protocol: Transport) =>
      conntrack
        .list(address.includes(':') ? 'ipv6' : 'ipv4', { destination: address, protocol: NUMBER[protocol] })
        .some(({ original }) => original.destinationPort === port);

    test('a Service of external policy Local is answered by local pods, which see the client, untranslated by nftables', async () => {
      await scene.sync([...service(20, ALL, 'external-local'), ...service(21, ALL)]);
      await scene.expectVerified();
      for (const kind of KINDS) {
        await everywhere(async (family, protocol) => {
          const to = destination(kind, family, 20);
          await scene.expectPlaces('outside', protocol, to, LOCAL, false);
          assert.ok(!wasTranslated(to, protocol), `${to} ${protocol}`);
        });
      }
    });

    test('all else goes by nftables', async () => {
      for (const kind of KINDS) {
        await everywhere(async (family, protocol) => {
          const to = destination(kind, family, 21);
          await scene.expectPlaces('outside', protocol, to, ALL, true);
          assert.ok(wasTranslated(to, protocol));
        });
      }
    });
  });
}
void existsSync;
void attachForeign;
