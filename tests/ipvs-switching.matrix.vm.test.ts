import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { SLOW_MACHINE_LOAD, walkUnderLoad } from './testing/mode-walk.ts';

/** mode-switch.netns.test.ts has all pairs of the modes that every kernel supports. */

const OTHERS = availableModes().filter((mode) => mode !== 'ipvs');

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '--mode', 'ipvs', '-f', HELLO]);
});
after(() => cluster?.down());

test('switching from IPVS to each other mode and back under load fails no request and breaks no connection', (t) => {
  assert.equal(OTHERS.length, 4);
  const path = OTHERS.flatMap((mode) => ['ipvs', mode]);
  return walkUnderLoad(t, cluster, [...path, 'ipvs'], SLOW_MACHINE_LOAD);
});
