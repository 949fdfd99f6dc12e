import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import type { Dataplane } from './dataplane.ts';
import { removePins } from './ebpf/pins.ts';
import { makeTestGroup, removeTestGroup } from './ebpf/testing/client.ts';
import { createIptables } from './iptables/iptables.ts';
import { createNftables } from './nftables/nftables.ts';
import { openEbpf } from './testing/open-ebpf.ts';
import { changeBetween, endpoint, frontend, NODE, serviceMap } from './testing/service-map.ts';
import { createUserspace } from './userspace/userspace.ts';

/** A Service of five thousand endpoints among others: five times the limit of one EndpointSlice. */

const MANY = 5000;

interface Place {
  readonly netns: string;
  readonly group: string;
  readonly pinPath: string;
}

const families = ['ipv4'] as const;
const MODES: Readonly<Record<string, (place: Place) => Dataplane>> = {
  nftables: ({ netns }) => createNftables({ families, netns }),
  'iptables-nft': ({ netns }) => createIptables({ families, netns, variant: 'nft' }),
  'iptables-legacy': ({ netns }) => createIptables({ families, netns, variant: 'legacy' }),
  userspace: ({ netns }) => createUserspace({ families, netns }),
  ebpf: ({ netns, group, pinPath }) => openEbpf({ families, netns, cgroup: group, pinPath }),
};

const service = (n: number, count: number) =>
  frontend({
    kind: 'ClusterIP',
    service: `web-${n}`,
    address: `10.96.0.${n}`,
    port: 80,
    endpoints: Array.from({ length: count }, (_, i) => endpoint(`10.244.${i >> 8}.${i & 255}`, 8080)),
  });

for (const [mode, open] of Object.entries(MODES)) {
  const tool = `/usr/sbin/${mode}-restore`;
  const skip = mode.startsWith('iptables') && !existsSync(tool) ? `${tool} is not installed` : false;
  test(`${mode}: a Service with 5,000 endpoints is programmed, changed and removed together with others`, {
    skip,
  }, async () => {
    const id = randomBytes(3).toString('hex');
    const netns = `flt-${id}-large`;
    const pinPath = `/run/flt-${id}-bpf`;
    createNetns(netns);
    const group = makeTestGroup();
    using socket = openRouteSocket(netns);
    const device = getLink(socket, 'lo').index;
    setLink(socket, device, { up: true });
    // The address that the userspace mode listens on.
    addAddress(socket, { device, address: NODE.ipv4 ?? '', prefix: 32 });
    const dataplane = open({ netns, group, pinPath });
    try {
      let now = serviceMap([service(1, 3), service(2, MANY), service(3, 1)]);
      assert.deepEqual((await dataplane.sync(now)).failed, []);
      assert.deepEqual(await dataplane.verify(), []);
      for (const next of [
        serviceMap([service(1, 4), service(2, MANY - 1), service(3, 1)]),
        serviceMap([service(1, 4), service(3, 1)]),
      ]) {
        assert.deepEqual((await dataplane.apply(changeBetween(now, next), next)).failed, []);
        assert.deepEqual(await dataplane.verify(), []);
        now = next;
      }
    } finally {
      await dataplane.remove();
      await dataplane.close();
      removePins(pinPath);
      await removeTestGroup(group);
      removeNetns(netns);
    }
  });
}
