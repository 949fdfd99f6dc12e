import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../../lib/clock.ts';
import { decide } from '../../service/decide.ts';
import type { Frontend, ServiceMap, SourceClass } from '../../service/model.ts';
import { createServiceTable } from '../../service/service-table.ts';
import { applyEdit, randomCluster } from '../../service/testing/random-cluster.ts';
import { ForwardingTable } from './forwarding-table.ts';
import { NOTHING } from './kernel-contents.ts';
import { ACTION } from './layout.ts';
import { MemoryMaps, type ResolvedFrontend } from './testing/memory-maps.ts';

const CAPACITY = { frontends: 4096, endpoints: 1 << 14, backends: 1 << 12 };

for (let seed = 1; seed <= 8; seed++) {
  test(`random cluster ${seed}: increments equal a fresh start, and calls go where the oracle says`, () => {
    const cluster = randomCluster(seed, { nodeEdits: false });
    const clock = manualClock(1_000_000);
    const services = createServiceTable(cluster.node);
    for (const object of cluster.services.values()) services.setService(object);
    for (const object of cluster.slices.values()) services.setSlice(object);
    let { map } = services.commit();
    const table = new ForwardingTable(CAPACITY, clock);
    const maps = new MemoryMaps();
    table.fill(map, NOTHING, maps);
    let compared = 0;
    for (let round = 0; round < 80; round++) {
      for (let i = 0; i < 3; i++) applyEdit(services, cluster.edit());
      clock.advance(60);
      const commit = services.commit();
      map = commit.map;
      table.apply(commit.change, map, maps);
      const fresh = new MemoryMaps();
      new ForwardingTable(CAPACITY, clock).fill(map, NOTHING, fresh);
      const shown = maps.resolve();
      assert.deepEqual(new Map([...shown].sort()), new Map([...fresh.resolve()].sort()), `round ${round}`);
      for (const frontend of map.frontends.values()) compared += agree(frontend, map, shown);
    }
    assert.ok(compared > 300, `${compared} decisions`);
  });
}

/** What is not left to nf_tables is what the oracle says. Returns how many classes were compared. */
function agree(frontend: Frontend, map: ServiceMap, shown: ReadonlyMap<string, ResolvedFrontend>): number {
  const protocol = { TCP: 6, UDP: 17, SCTP: 132 }[frontend.protocol];
  const entry = shown.get(`${frontend.address} port ${frontend.port} protocol ${protocol}`);
  if (!entry || frontend.address === null) return 0;
  let compared = 0;
  for (const sourceClass of ['pod', 'node'] as const satisfies readonly SourceClass[]) {
    const route: ResolvedFrontend['pod'] = entry[sourceClass];
    if (route.action === ACTION.pass) continue;
    const verdict = decide(map, {
      // No endpoint has this address.
      source: frontend.family === 'ipv4' ? '198.18.0.1' : '2001:db8:ffff::1',
      sourceClass,
      destination: frontend.address,
      port: frontend.port,
      protocol: frontend.protocol,
    });
    assert.equal(verdict.action, route.action === ACTION.refuse ? 'reject' : 'forward');
    assert.equal(entry.affinitySeconds, frontend.affinitySeconds ?? 0);
    const wanted = verdict.candidates.map(({ endpoint }) => `${endpoint.ip} ${endpoint.port}`).sort();
    assert.deepEqual([...new Set(route.endpoints)].sort(), wanted);
    assert.deepEqual(route.members, frontend.affinitySeconds === null ? [] : wanted);
    assert.ok(sourceClass === 'node' || verdict.candidates.every(({ masquerade }) => !masquerade));
    compared++;
  }
  return compared;
}
