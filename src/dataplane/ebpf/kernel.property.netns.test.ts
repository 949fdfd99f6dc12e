import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../../service/testing/random-cluster.ts';
import { openEbpf } from '../testing/open-ebpf.ts';
import { closeMaps, openMaps } from './maps.ts';
import { removePins } from './pins.ts';
import { agree } from './testing/agree.ts';
import { makeTestGroup, removeTestGroup } from './testing/client.ts';
import { MemoryMaps } from './testing/memory-maps.ts';

describe('the maps in the kernel', () => {
  const id = randomBytes(3).toString('hex');
  /** The network namespaces of the edited node and of a freshly started one. */
  const namespaces = [`flt-${id}-a`, `flt-${id}-b`] as const;
  const pins = [`/run/flt-${id}-edited`, `/run/flt-${id}-fresh`] as const;
  let groups: string[] = [];

  before(() => {
    for (const namespace of namespaces) createNetns(namespace);
    groups = [makeTestGroup(), makeTestGroup()];
  });
  after(async () => {
    for (const path of pins) removePins(path);
    for (const group of groups) await removeTestGroup(group);
    for (const namespace of namespaces) removeNetns(namespace);
  });

  const open = (which: 0 | 1) =>
    openEbpf({
      families: ['ipv4', 'ipv6'],
      netns: namespaces[which],
      cgroup: groups[which] ?? '',
      pinPath: pins[which],
    });

  function read(which: 0 | 1): MemoryMaps {
    const found = openMaps(pins[which]);
    assert.ok(found);
    try {
      return MemoryMaps.read(found.maps);
    } finally {
      closeMaps(found.maps);
    }
  }

  for (let seed = 101; seed <= 102; seed++) {
    test(`random cluster ${seed}: equal those of a fresh start after random edits, and agree with the oracle`, async () => {
      const cluster = randomCluster(seed, { nodeEdits: false });
      const services = serviceTableOf(cluster);
      let { map } = services.commit();
      const edited = open(0);
      let compared = 0;
      try {
        await edited.sync(map);
        for (let round = 0; round < 10; round++) {
          for (let i = 0; i < 8; i++) applyEdit(services, cluster.edit());
          const commit = services.commit();
          map = commit.map;
          await edited.apply(commit.change, map);
          assert.deepEqual(await edited.verify(), []);
          const shown = read(0).resolve();
          for (const frontend of map.frontends.values()) compared += agree(frontend, map, shown);
        }
        const fresh = open(1);
        try {
          await fresh.sync(map);
          assert.deepEqual(new Map([...read(0).resolve()].sort()), new Map([...read(1).resolve()].sort()));
        } finally {
          await fresh.remove();
          await fresh.close();
        }
      } finally {
        await edited.remove();
        await edited.close();
      }
      assert.ok(compared > 40, `${compared} decisions`);
    });
  }
});
