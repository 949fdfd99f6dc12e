import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { openIpsets } from '../../kernel/ipset.ts';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { familyOf } from '../../lib/address.ts';
import { snapshot } from '../../service/diff.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../../service/testing/random-cluster.ts';
import { isConsistent } from '../testing/packet-class.ts';
import { TABLES } from './chain-names.ts';
import { createIptables } from './iptables.ts';
import { type LiveTable, readTables } from './restore.ts';
import { agree } from './testing/agree.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
/** The last seed of random clusters, from 21. */
const LAST_SEED = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 23 : 21;
const ROUNDS = 24;
const EDITS = 4;
const PACKETS = 25;
/** Interval, in rounds, at which the kernel is compared with a fresh start. */
const COMPARED = 3;

for (const variant of ['nft', 'legacy'] as const) {
  const skip = existsSync(`/usr/sbin/iptables-${variant}`) ? false : `iptables-${variant} is not installed`;
  for (let seed = 21; seed <= LAST_SEED; seed++) {
    test(`iptables-${variant}, random cluster ${seed}: the output of iptables-save after incremental changes equals a fresh start and agrees with the oracle`, {
      skip,
    }, async (t) => {
      const id = randomBytes(3).toString('hex');
      const [netns, other] = [`flt-${id}-increments`, `flt-${id}-fresh`];
      for (const name of [netns, other]) {
        createNetns(name);
        t.after(() => removeNetns(name));
      }
      const dataplane = createIptables({ families: FAMILIES, variant, netns });
      const fresh = createIptables({ families: FAMILIES, variant, netns: other });
      try {
        const cluster = randomCluster(seed);
        const table = serviceTableOf(cluster);
        await dataplane.sync(table.commit().map);
        let compared = 0;
        for (let round = 0; round < ROUNDS; round++) {
          for (let i = 0; i < EDITS; i++) applyEdit(table, cluster.edit());
          const { map, change } = table.commit();
          assert.deepEqual((await dataplane.apply(change, map)).failed, []);
          if (round % COMPARED !== 0) continue;
          assert.deepEqual(await dataplane.verify(), [], `round ${round}`);
          await fresh.sync(snapshot(map));
          assert.deepEqual(setsIn(netns), setsIn(other), `round ${round}`);
          for (const family of FAMILIES) {
            const live = await readTables({ family, variant, netns });
            const wanted = await readTables({ family, variant, netns: other });
            for (const name of TABLES) {
              assert.deepEqual(sorted(live[name]), sorted(wanted[name]), `round ${round}, ${family} ${name}`);
            }
            const tables = { nat: live.nat.chains, filter: live.filter.chains };
            for (let i = 0; i < PACKETS; i++) {
              const packet = cluster.packet(map);
              if (familyOf(packet.destination) !== family || !isConsistent(packet, map)) continue;
              agree(map, packet, tables);
              compared++;
            }
          }
        }
        assert.ok(compared > 40, `${compared} packets`);
      } finally {
        await dataplane.close();
        await fresh.close();
      }
    });
  }
}

function setsIn(netns: string): string[] {
  const sets = openIpsets(netns);
  try {
    return sets.list().toSorted();
  } finally {
    sets.close();
  }
}

const sorted = ({ chains, builtin }: LiveTable) => new Map([...chains, ...builtin].sort());
