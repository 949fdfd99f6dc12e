import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { AgentState } from '../../src/agent/agent-state.ts';
import { askAgent } from '../../src/cluster/agent-client.ts';
import { pinPathOf } from '../../src/dataplane/ebpf/pins.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { listTopology } from '../../src/network/topology.ts';
import { moreAnswers } from './cluster.ts';
import { machineChanges, machineState } from './machine.ts';
import { FOREIGN, type PromiseScene } from './promise-scene.ts';

async function killAgent({ cluster }: PromiseScene): Promise<void> {
  await cluster.stopSupervisor();
  const pid = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent?.pid;
  assert.ok(pid);
  process.kill(pid, 'SIGKILL');
}

async function startAgain({ cluster, patienceMs }: PromiseScene): Promise<void> {
  const { status, error } = await cluster.fairlead('up', '--detach');
  assert.equal(status, 0, error);
  await eventually(
    () => cluster.fairlead('status'),
    ({ status }) => status === 0,
    patienceMs,
  );
}

/** Returns the mode that the agent of node-1 is in. */
async function modeOfAgent({ cluster }: PromiseScene): Promise<string> {
  // The agent's socket is found by it.
  process.env['FAIRLEAD_STATE'] = cluster.stateRoot;
  return (await askAgent<AgentState>(cluster.state(), 'node-1', 'GET', '/state')).mode;
}

export function testAgentKilled(scene: PromiseScene): void {
  // Connections belong to the process of the userspace mode: they end with it, as docs/userspace.md says.
  if (scene.mode === 'userspace') {
    test('kill -9 of an agent: Services work again with a new one', async () => {
      const [service] = await scene.clusterIPs('hello');
      await killAgent(scene);
      await startAgain(scene);
      const { failures } = await scene.cluster.request('node/node-1', `http://${service}`, '--count', '60');
      assert.deepEqual(failures, {});
    });
    return;
  }
  test('kill -9 of an agent: traffic continues, and a new agent takes over without interrupting it', async () => {
    const { cluster } = scene;
    const [service] = await scene.clusterIPs('hello');
    // By address, since the agent itself answers names.
    const load = cluster.load('node/node-1', `http://${service}`, ...scene.load);
    const connection = cluster.connect('node/node-1', service, 80);
    await moreAnswers(connection);
    await killAgent(scene);
    for (let i = 0; i < 10; i++) await moreAnswers(connection);
    await startAgain(scene);
    await moreAnswers(connection);
    const { count, failures } = await load.stop();
    assert.deepEqual(failures, {});
    assert.ok(count >= 100, `${count} requests`);
    assert.equal((await connection.stop()).answers.size, 1);
    assert.equal(await modeOfAgent(scene), scene.mode);
  });
}

export function testCleanup(scene: PromiseScene): void {
  test('cleanup of a node removes all state of the mode, and nothing of other programs', async () => {
    const { cluster, mode, onNode } = scene;
    for (const { add } of FOREIGN) onNode(...add);
    await killAgent(scene);
    const configuration = `${cluster.stateRoot}/${cluster.name}/nodes/node-1/agent.json`;
    const pins = pinPathOf(JSON.parse(readFileSync(configuration, 'utf8')).pods.cgroupParent);
    assert.equal(existsSync(pins), mode === 'ebpf', `${pins} of a node in mode ${mode}`);
    const { status, out, error } = await cluster.fairlead(
      ...['exec', 'node/node-1', '--', 'fairlead', 'cleanup', '--config', configuration],
    );
    assert.equal(status, 0, `${out}${error}`);
    assert.ok(!existsSync(pins));
    assert.doesNotMatch(onNode('nft', 'list', 'tables'), /fairlead/);
    assert.doesNotMatch(onNode('iptables-save') + onNode('ip6tables-save'), /KUBE-/);
    assert.doesNotMatch(onNode('ip', '-brief', 'link'), /^(fl0|fl\.vxlan|fairlead)/m);
    for (const { list, shown } of FOREIGN) assert.match(onNode(...list), shown);
    for (const { remove } of FOREIGN) onNode(...remove);
    // A new agent programs everything again, and existing pods get their network back.
    await startAgain(scene);
    await eventually(
      () => cluster.request('client', 'http://hello', '--count', '30', '--timeout', '20000'),
      ({ failures }) => Object.keys(failures).length === 0,
      scene.patienceMs,
    );
  });
}

export function testRestart(scene: PromiseScene): void {
  test('a stopped cluster leaves no namespace, and up brings back its objects and addresses', async () => {
    const { cluster } = scene;
    // Fewer pods start again. A Service without endpoints counts as unhealthy.
    for (const name of ['rolling', 'fragile'])
      await cluster.ask('delete', `deployment/${name}`, `service/${name}`, '--cascade=foreground');
    const facts = () =>
      cluster.ask(
        ...['get', 'services,deployments', '-A', '--sort-by=.metadata.name', '-o'],
        'jsonpath={range .items[*]}{.kind} {.metadata.uid} {.spec.clusterIPs}{"\\n"}{end}',
      );
    const before = await facts();
    const stopped = await cluster.fairlead('stop');
    assert.equal(stopped.status, 0, stopped.error);
    assert.deepEqual(listTopology(cluster.name), []);
    await startAgain(scene);
    assert.equal(await facts(), before);
    assert.equal(await modeOfAgent(scene), scene.mode);
    for (const family of ['-4', '-6']) {
      const { failures, answers } = await cluster.request('client', 'http://hello', '--count', '60', family);
      assert.deepEqual([failures, Object.keys(answers).length], [{}, 3]);
    }
  });
}

export function testModeSwitch(scene: PromiseScene): void {
  test(`switching to ${scene.next} mode under load fails no request and breaks no connection`, async () => {
    const { cluster } = scene;
    const [node = ''] = cluster.state().nodes[0]?.addresses ?? [];
    const [service, service6] = await scene.clusterIPs('hello');
    const loads = [
      ['client', 'http://hello'],
      ['client', 'udp://hello:80'],
      ['node/node-1', `http://[${service6}]`],
      ['outside', `http://${node}:30080`],
    ].map(([place = '', url = '']) => ({ url, load: cluster.load(place, url, ...scene.load) }));
    const connections = [cluster.connect('client', service, 80), cluster.connect('outside', node, 30080)];
    for (const connection of connections) await moreAnswers(connection);
    const { status, error } = await cluster.fairlead('mode', scene.next);
    assert.equal(status, 0, error);
    assert.equal(await modeOfAgent(scene), scene.next);
    for (const connection of connections) {
      await moreAnswers(connection);
      assert.equal((await connection.stop()).answers.size, 1);
    }
    for (const { url, load } of loads) assert.deepEqual([url, (await load.stop()).failures], [url, {}]);
  });
}

export function testTakeDown(scene: PromiseScene): void {
  test('down leaves nothing on the machine: no namespaces, rules, mounts, processes or files', async () => {
    const { cluster, earlier } = scene;
    const { name, stateRoot } = cluster;
    assert.notDeepEqual(machineState(name, stateRoot), earlier);
    assert.deepEqual(await cluster.fairlead('down'), {
      status: 0,
      out: `cluster ${name} removed\n`,
      error: '',
    });
    assert.deepEqual(machineChanges(earlier, machineState(name, stateRoot)), []);
    assert.deepEqual(existsSync(stateRoot) ? readdirSync(stateRoot) : [], []);
    assert.deepEqual(await cluster.fairlead('down'), {
      status: 0,
      out: `no such cluster: ${name}\n`,
      error: '',
    });
  });
}
