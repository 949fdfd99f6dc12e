import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { listNetns } from '../src/kernel/netns.ts';
import { isRunning } from '../src/kernel/process-identity.ts';
import { addAddress, deleteAddress } from '../src/kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../src/kernel/rtnetlink/links.ts';
import type { Node } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { nodeNetns, UPLINK } from '../src/network/topology.ts';
import { type Cluster, HELLO, moreAnswers, startCluster } from './testing/cluster.ts';

// Nodes join, leave and change their address while the others are in use.

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '--overlay', 'vxlan', '-f', HELLO]);
});
after(() => cluster?.down());

const up = async (...args: readonly string[]) => {
  const { status, error } = await cluster.fairlead('up', '--detach', ...args);
  assert.equal(status, 0, error);
  return error;
};
const nodeNames = () => cluster.state().nodes.map(({ name }) => name);
/** Returns the client's node, and servers on two other nodes. */
async function places() {
  const [client] = await cluster.pods('app=client');
  const [first, second] = (await cluster.pods('app=hello')).filter(({ node }) => node !== client?.node);
  assert.ok(client && first && second && first.node !== second.node);
  return { first, second };
}

test('a node changes its address without interrupting its connections or those of others', async () => {
  const { first: moving, second: staying } = await places();
  const load = cluster.load('client', `http://${staying.ips[0]}:8080/hostname`);
  const connection = cluster.connect('client', moving.ips[0] ?? '', 8080);
  await moreAnswers(connection);
  const state = cluster.state();
  const node = state.nodes.find(({ name }) => name === moving.node);
  assert.ok(node?.agent);
  const address = '172.30.0.99'.replace(/^172\.30\.0/, (node.addresses[0] ?? '').replace(/\.\d+$/, ''));
  await cluster.stopSupervisor();
  process.kill(node.agent.pid, 'SIGTERM');
  await eventually(
    () => isRunning(node.agent),
    (running) => !running,
  );
  {
    using route = openRouteSocket(nodeNetns(cluster.name, node.name));
    const device = getLink(route, UPLINK).index;
    deleteAddress(route, { device, address: node.addresses[0] ?? '', prefix: 24 });
    addAddress(route, { device, address, prefix: 24 });
  }
  const nodes = state.nodes.map((one) => (one === node ? { ...one, addresses: [address] } : one));
  writeFileSync(join(cluster.stateRoot, cluster.name, 'cluster.json'), JSON.stringify({ ...state, nodes }));
  assert.match(await up(), new RegExp(`restarted: ${node.name}`));
  const shown = JSON.parse(await cluster.ask('get', 'node', node.name, '-o', 'json')) as Node;
  assert.ok(shown.status?.addresses?.some((one) => one.type === 'InternalIP' && one.address === address));
  for (const resource of ['cpu', 'memory', 'ephemeral-storage', 'pods'])
    assert.match(String(shown.status?.allocatable?.[resource]), /^[1-9]\d*(Ki)?$/, resource);
  const { answers } = await cluster.request(
    'client',
    `http://${moving.ips[0]}:8080/hostname`,
    '--count',
    '20',
  );
  assert.deepEqual(answers, { [moving.name]: 20 });
  await moreAnswers(connection);
  await connection.stop();
  const { count, failures } = await load.stop();
  assert.deepEqual(failures, {}, `of ${count}`);
  assert.equal((await cluster.request('outside', `http://${address}:30080`, '--count', '10')).count, 10);
});

test('up with options that differ from the running cluster reports it and changes nothing', async () => {
  for (const [option, value, hint] of [
    ['--mode', 'userspace', /fairlead mode userspace/],
    ['--overlay', 'routes', /fairlead down/],
  ] as const) {
    const { status, error } = await cluster.fairlead('up', '--detach', option, value, '--nodes', '4');
    assert.notEqual(status, 0);
    assert.match(error, hint);
  }
  assert.equal(nodeNames().length, 3);
});

test('nodes join and leave while a Service is used and a connection between others is open', async () => {
  const { first } = await places();
  assert.equal((await cluster.fairlead('mode', 'iptables')).status, 0);
  const load = cluster.load('client', 'http://hello');
  const connection = cluster.connect('client', first.ips[0] ?? '', 8080);
  await moreAnswers(connection);
  assert.match(await up('--nodes', '5'), /added: node-4, node-5/);
  const mode = await cluster.request('node/node-5', 'http://127.0.0.1:10249/proxyMode', '--count', '1');
  assert.deepEqual(mode.answers, { iptables: 1 }, 'they are as the others have been told to be');
  await cluster.ask('scale', 'deployment/hello', '--replicas=6');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  const late = (await cluster.pods('app=hello')).filter(({ node }) => node === 'node-4' || node === 'node-5');
  assert.ok(late.length > 1, 'they get pods');
  for (const { name, ips } of late) {
    const { answers } = await cluster.request('client', `http://${ips[0]}:8080/hostname`);
    assert.deepEqual(Object.keys(answers), [name]);
  }
  assert.equal((await cluster.request('node/node-5', 'http://hello', '--count', '40')).count, 40);

  assert.match(await up('--nodes', '3'), /node-4, node-5/);
  const { count, failures } = await load.stop();
  assert.deepEqual(failures, {}, `of ${count}`);
  await moreAnswers(connection);
  await connection.stop();
  assert.deepEqual(nodeNames(), ['node-1', 'node-2', 'node-3']);
  assert.doesNotMatch(await cluster.ask('get', 'nodes', '-o', 'name'), /node-[45]/);
  assert.deepEqual(
    listNetns().filter((name) => /-node-[45]$/.test(name) && name.startsWith(`fl-${cluster.name}-`)),
    [],
  );
});
