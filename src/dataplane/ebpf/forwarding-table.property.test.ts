import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../../lib/clock.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../../service/testing/random-cluster.ts';
import { ForwardingTable } from './forwarding-table.ts';
import { EMPTY } from './map-contents.ts';
import { agree } from './testing/agree.ts';
import { MemoryMaps } from './testing/memory-maps.ts';

const CAPACITY = { frontends: 4096, endpoints: 1 << 14, backends: 1 << 12, members: 1 << 14 };

const SEEDS = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 8 : 3;

for (let seed = 1; seed <= SEEDS; seed++) {
  test(`random cluster ${seed}: incremental changes yield the state of a fresh start, and calls follow the oracle`, () => {
    const cluster = randomCluster(seed, { nodeEdits: false });
    const clock = manualClock(1_000_000);
    const services = serviceTableOf(cluster);
    let { map } = services.commit();
    const table = new ForwardingTable(CAPACITY, clock, true);
    const maps = new MemoryMaps();
    table.fill(map, EMPTY, maps);
    let compared = 0;
    for (let round = 0; round < 40; round++) {
      for (let i = 0; i < 3; i++) applyEdit(services, cluster.edit());
      clock.advance(60);
      const commit = services.commit();
      map = commit.map;
      table.apply(commit.change, map, maps);
      const fresh = new MemoryMaps();
      new ForwardingTable(CAPACITY, clock, true).fill(map, EMPTY, fresh);
      const shown = maps.resolve();
      assert.deepEqual(new Map([...shown].sort()), new Map([...fresh.resolve()].sort()), `round ${round}`);
      for (const frontend of map.frontends.values()) compared += agree(frontend, map, shown);
    }
    assert.ok(compared > 150, `${compared} decisions`);
  });
}
