import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { isRunning } from '../src/kernel/process-identity.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, moreAnswers, startCluster } from './testing/cluster.ts';

/**
 * The agent of a node in userspace mode, whose process accepts all connections to Services, is replaced as by a DaemonSet
 * or systemd: the next one starts after it has ended.
 */

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '1', '--ip-family', 'dual', '--mode', 'userspace', '-f', HELLO]);
});
after(() => cluster?.down());

const rules = () =>
  execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-node-1`, 'nft', 'list', 'tables'], {
    encoding: 'utf8',
  })
    .split('\n')
    .filter((line) => /^table ip6? fairlead(-userspace)?$/.test(line))
    .sort();
const IN_USERSPACE = ['table ip fairlead-userspace', 'table ip6 fairlead-userspace'];
const IN_KERNEL = ['table ip fairlead', 'table ip6 fairlead'];

test('userspace mode: no request fails and no open connection breaks while the agent is replaced', async (t) => {
  const node = cluster.state().nodes[0];
  const agent = node?.agent;
  assert.ok(node && agent);
  const [v4 = '', v6 = ''] = (
    await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIPs[*]}')
  ).split(' ');
  const loads = [
    ['client', `http://${v4}`],
    ['client', `http://[${v6}]`],
    ['client', `udp://${v4}:80`],
    ['client', `udp://[${v6}]:80`],
    ['outside', `http://${node.addresses[0]}:30080`],
    ['outside', `http://[${node.addresses[1]}]:30080`],
    ['node/node-1', 'http://127.0.0.1:30080'],
  ].map(([place = '', url = '']) => ({
    name: `${url} from ${place}`,
    load: cluster.load(place, url, '--rate', '50'),
  }));
  const connections = [
    cluster.connect('client', v4, 80),
    cluster.connect('client', v6, 80),
    cluster.connect('outside', node.addresses[0] ?? '', 30080),
  ];
  for (const connection of connections) await moreAnswers(connection);
  assert.deepEqual(rules(), IN_USERSPACE);

  await cluster.stopSupervisor();
  process.kill(agent.pid, 'SIGTERM');
  await eventually(rules, (tables) => tables.join() === IN_KERNEL.join());
  for (const connection of connections) {
    await moreAnswers(connection);
    assert.ok(isRunning(agent));
    assert.equal((await connection.stop()).answers.size, 1);
  }
  await eventually(
    () => isRunning(agent),
    (running) => !running,
  );
  assert.deepEqual(rules(), IN_KERNEL);
  const begunWithout = cluster.connect('client', v4, 80);
  await moreAnswers(begunWithout);

  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
  await eventually(rules, (tables) => tables.join() === IN_USERSPACE.join());
  await moreAnswers(begunWithout);
  assert.equal((await begunWithout.stop()).answers.size, 1);
  for (const { name, load } of loads) {
    const { count, failures } = await load.stop();
    t.diagnostic(`${name}: ${count} requests`);
    assert.deepEqual(failures, {}, name);
    assert.ok(count >= 100, `${count} requests`);
  }
});
