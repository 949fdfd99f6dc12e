import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { SLOW_MACHINE_LOAD, walkUnderLoad } from './testing/mode-walk.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/** mode-switch.netns.test.ts has all pairs of the modes that every kernel supports. */

const OTHERS = availableModes().filter((mode) => mode !== 'ipvs');

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '--mode', 'ipvs', '-f', HELLO]);
});
after(() => cluster?.down());

test('switching from IPVS to each other mode and back under load fails no request and breaks no connection', (t) => {
  assert.equal(OTHERS.length, 4);
  // The mode whose rules are most like those of this one. ipvs-cluster.vm.test.ts switches to nftables mode and a node back,
  // src/dataplane/ipvs-switching.vm.test.ts between all pairs, with its packets alone.
  const others = TAKES_FULL_PRODUCT ? OTHERS : ['iptables'];
  const path = others.flatMap((mode) => ['ipvs', mode]);
  return walkUnderLoad(t, cluster, [...path, 'ipvs'], SLOW_MACHINE_LOAD);
});
