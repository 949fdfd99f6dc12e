import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { eventually } from '../../src/lib/testing/eventually.ts';
import type { Cluster, Connection } from './cluster.ts';

/**
 * Options of a load for the virtual machine, which has one slow processor: requests are few, and late ones do not count as
 * lost.
 */
export const SLOW_MACHINE_LOAD = [
  ...['--timeout', '20000', '--concurrency', '1', '--rate', '10', '--count', '30'],
] as const;

/** Returns a sequence of modes in which each ordered pair of modes follows one another once. */
export function walkThroughPairs(modes: readonly string[]): string[] {
  const path = [modes[0] ?? ''];
  const left = new Set(
    modes.flatMap((from) => modes.filter((to) => to !== from).map((to) => `${from} ${to}`)),
  );
  while (left.size > 0) {
    const from = path.at(-1) ?? '';
    // The mode with the most remaining pairs comes next, so that the sequence does not end early.
    const [next] = modes
      .filter((to) => left.has(`${from} ${to}`))
      .sort((a, b) => pairsFrom(b) - pairsFrom(a));
    if (next === undefined) throw new Error(`the sequence ends early, at ${from}`);
    left.delete(`${from} ${next}`);
    path.push(next);
  }
  return path;
  function pairsFrom(mode: string): number {
    return [...left].filter((pair) => pair.startsWith(`${mode} `)).length;
  }
}

/**
 * Switches a cluster with the Service hello from mode to mode, under a constant load of new connections and with open
 * connections. Each switch is a subtest, in which no request may fail and no connection may break. `options`: of
 * `fairlead request`, which sends the load.
 */
export async function walkUnderLoad(
  t: TestContext,
  cluster: Cluster,
  path: readonly string[],
  options: readonly string[] = [],
): Promise<void> {
  const load = (place: string, url: string) => cluster.load(place, url, ...options);
  const node = cluster.state().nodes[0]?.addresses[0] ?? '';
  const service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
  const loads = [
    { name: 'client', load: load('client', 'http://hello') },
    { name: 'node', load: load('node/node-1', `http://${service}`) },
    { name: 'outside', load: load('outside', `http://${node}:30080`) },
    { name: 'udp', load: load('client', 'udp://hello:80') },
  ];
  const open = () => [cluster.connect('client', service, 80), cluster.connect('outside', node, 30080)];
  let connections = open();
  for (const [index, mode] of path.entries()) {
    if (index === 0) continue;
    await t.test(`${path[index - 1]} → ${mode}`, async () => {
      // These connections were opened in the previous mode, and must continue in the next.
      for (const connection of connections) await moreAnswers(connection);
      const { status, error } = await cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
      const earlier = connections;
      connections = open();
      for (const connection of earlier) {
        await moreAnswers(connection);
        assert.equal((await connection.stop()).answers.size, 1);
      }
      for (const { name, load } of loads) assert.deepEqual(load.failures, {}, name);
    });
  }
  for (const connection of connections) await connection.stop();
  for (const { name, load } of loads) {
    const { count, failures } = await load.stop();
    assert.deepEqual(failures, {}, name);
    assert.ok(count >= 10 * path.length, `${count} requests`);
  }
}

/** On a virtual machine whose host is busy, a process has taken more than a minute to start. */
const PATIENCE_MS = 300_000;

/** Waits until a connection has been answered twice more: at least one of the requests was sent after the call. */
async function moreAnswers(connection: Connection): Promise<void> {
  const before = connection.answered();
  await eventually(connection.answered, (count) => count >= before + 2, PATIENCE_MS);
}
