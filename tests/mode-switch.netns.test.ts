import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { release } from 'node:os';
import { after, before, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { walkThroughPairs, walkUnderLoad } from './testing/mode-walk.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/** Not every kernel supports IPVS: ipvs-cluster.vm.test.ts tests it. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '--mode', 'nftables', '-f', HELLO]);
});
after(() => cluster?.down());

/**
 * Each mode is left and entered once, by other pairs than the switches of tests/promise: what a switch does depends on the
 * mode that ends and on the one that begins, hardly on their pair. The full product has all ordered pairs.
 */
const WALK = ['nftables', 'userspace', 'iptables', 'ebpf', 'nftables'].filter((mode) =>
  MODES.some((one) => one === mode),
);

test('switching between modes under load fails no request and breaks no connection', (t) =>
  walkUnderLoad(
    t,
    cluster,
    TAKES_FULL_PRODUCT
      ? walkThroughPairs(['nftables', ...MODES.filter((mode) => mode !== 'nftables')])
      : WALK,
  ));

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
