import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { release } from 'node:os';
import { after, before, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { walkThroughPairs, walkUnderLoad } from './testing/mode-walk.ts';

/** Not every kernel supports IPVS: ipvs-switching.matrix.vm.test.ts tests it. */
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

test('switching between all pairs of modes under load fails no request and breaks no connection', (t) =>
  walkUnderLoad(t, cluster, walkThroughPairs(MODES)));

const hasIpvs =
  existsSync('/proc/net/ip_vs') || existsSync(`/lib/modules/${release()}/kernel/net/netfilter/ipvs`);

test('a mode that the kernel does not support is refused, and the previous mode remains', {
  skip: hasIpvs ? 'this kernel has IPVS' : false,
}, async () => {
  const mode = () =>
    cluster.ask('get', 'node', 'node-1', '-o', 'jsonpath={.metadata.annotations.fairlead\\.dev/mode}');
  const before = await mode();
  const { status, out, error } = await cluster.fairlead('mode', 'ipvs', '--node', 'node-1');
  assert.notEqual(status, 0);
  assert.match(`${out}${error}`, /does not support IPVS/);
  assert.match(`${out}${error}`, /ip_vs/);
  const { failures } = await cluster.request('node/node-1', 'http://127.0.0.1:30080', '--count', '20');
  assert.deepEqual(failures, {});
  assert.equal(await mode(), before);
});
