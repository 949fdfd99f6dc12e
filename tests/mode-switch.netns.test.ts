import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, HELLO, startCluster } from './support/cluster.ts';

/** IPVS is not in every kernel. */
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

/** A walk that takes every ordered pair of modes once. */
function walk(modes: readonly string[]): string[] {
  const path = [modes[0] ?? ''];
  const left = new Set(
    modes.flatMap((from) => modes.filter((to) => to !== from).map((to) => `${from} ${to}`)),
  );
  while (left.size > 0) {
    const from = path.at(-1) ?? '';
    // Of the pairs that begin here, one whose end has most pairs left: no dead end comes before all are taken.
    const [next] = modes.filter((to) => left.has(`${from} ${to}`)).sort((a, b) => waysFrom(b) - waysFrom(a));
    if (next === undefined) throw new Error(`the walk ends at ${from}`);
    left.delete(`${from} ${next}`);
    path.push(next);
  }
  return path;
  function waysFrom(mode: string): number {
    return [...left].filter((pair) => pair.startsWith(`${mode} `)).length;
  }
}

test('a walk through all pairs of modes under load: no request fails, no connection breaks', async (t) => {
  const node = cluster.state().nodes[0]?.addresses[0];
  const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
  const loads = [
    { name: 'client', load: cluster.load('client', 'http://hello') },
    { name: 'node', load: cluster.load('node/node-1', `http://${service}`) },
    { name: 'outside', load: cluster.load('outside', `http://${node}:30080`) },
    { name: 'udp', load: cluster.load('client', 'udp://hello:80') },
  ];
  const path = walk(MODES);
  let connections = [cluster.connect('client', service, 80), cluster.connect('outside', node ?? '', 30080)];
  for (const [index, mode] of path.entries()) {
    if (index === 0) continue;
    await t.test(`${path[index - 1]} → ${mode}`, async () => {
      const { status, error } = await cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
      await new Promise((resolve) => setTimeout(resolve, 300));
      const open = connections;
      connections = [cluster.connect('client', service, 80), cluster.connect('outside', node ?? '', 30080)];
      for (const connection of open) {
        const { requests, answers } = await connection.stop();
        assert.ok(requests > 3, `${requests} requests`);
        assert.equal(answers.size, 1);
      }
      // The next connections have begun in this mode before it is left.
      await new Promise((resolve) => setTimeout(resolve, 500));
      for (const { name, load } of loads) assert.deepEqual(load.failures, {}, name);
    });
  }
  for (const connection of connections) await connection.stop();
  for (const { name, load } of loads) {
    const { count, failures } = await load.stop();
    assert.deepEqual(failures, {}, name);
    assert.ok(count > 300);
  }
});
