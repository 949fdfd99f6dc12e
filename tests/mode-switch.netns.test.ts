import { after, before, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, HELLO, startCluster } from './support/cluster.ts';
import { walkThroughPairs, walkUnderLoad } from './support/mode-walk.ts';

/** IPVS is not in every kernel: ipvs-cluster.vm.test.ts switches to it and back. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

let cluster: Cluster;
before(async () => {
  cluster = await startCluster([
    '--nodes',
    '2',
    '--ip-family',
    'dual',
    '--mode',
    MODES[0] ?? '',
    '-f',
    HELLO,
  ]);
});
after(() => cluster?.down());

test('a walk through all pairs of modes under load: no request fails, no connection breaks', (t) =>
  walkUnderLoad(t, cluster, walkThroughPairs(MODES)));
