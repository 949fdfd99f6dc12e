import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { pinPathOf } from '../src/dataplane/ebpf/pins.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';

/**
 * Traffic survives a killed agent; `cleanup` removes the state that it left, and keeps that of other
 * programs.
 */

const MODES = availableModes().filter((mode) => mode !== 'ipvs');

let cluster: Cluster;
let service: string;
before(async () => {
  cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '-f', HELLO]);
  service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
});
after(() => cluster?.down());

const onNode = (...words: string[]) =>
  execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-node-1`, ...words], { encoding: 'utf8' });

async function killAgent(): Promise<void> {
  await cluster.stopSupervisor();
  const pid = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent?.pid;
  assert.ok(pid);
  process.kill(pid, 'SIGKILL');
}

async function startAgain(): Promise<void> {
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
  await eventually(
    () => cluster.fairlead('status'),
    ({ status }) => status === 0,
  );
}

for (const mode of MODES) {
  describe(mode, () => {
    before(async () => {
      const { status, error } = await cluster.fairlead('mode', mode, '--node', 'node-1');
      assert.equal(status, 0, error);
    });

    // Connections belong to the process of the userspace mode: they end with it, as docs/userspace.md says.
    if (mode !== 'userspace') {
      test('kill -9 of the agent: traffic continues, and a new agent takes over without interrupting it', async () => {
        const load = cluster.load('node/node-1', `http://${service}`);
        const connection = cluster.connect('node/node-1', service, 80);
        await killAgent();
        await new Promise((resolve) => setTimeout(resolve, 700));
        await startAgain();
        const { count, failures } = await load.stop();
        assert.deepEqual(failures, {});
        assert.ok(count >= 300, `${count} requests`);
        assert.equal((await connection.stop()).answers.size, 1);
        assert.match(await modeOfNode(), new RegExp(`^${mode}$`));
      });
    } else {
      test('kill -9 of the agent: Services work again with a new one', async () => {
        await killAgent();
        await startAgain();
        const { failures } = await cluster.request('node/node-1', `http://${service}`, '--count', '60');
        assert.deepEqual(failures, {});
      });
    }

    test('cleanup removes all state of the mode, and nothing else', async () => {
      onNode('nft', 'add', 'table', 'ip', 'theirs');
      onNode('iptables', '-t', 'nat', '-N', 'THEIRS');
      await killAgent();
      const paths = `${cluster.stateRoot}/${cluster.name}/nodes/node-1/agent.json`;
      const pins = pinPathOf(JSON.parse(readFileSync(paths, 'utf8')).pods.cgroupParent);
      assert.equal(existsSync(pins), mode === 'ebpf', `${pins} of a node in mode ${mode}`);
      const { status, out, error } = await cluster.fairlead(
        ...['exec', 'node/node-1', '--', 'fairlead', 'cleanup', '--config', paths],
      );
      assert.equal(status, 0, `${out}${error}`);
      assert.ok(!existsSync(pins));
      assert.doesNotMatch(onNode('nft', 'list', 'tables'), /fairlead/);
      assert.match(onNode('nft', 'list', 'tables'), /theirs/);
      const rules = onNode('iptables-save') + onNode('ip6tables-save');
      assert.doesNotMatch(rules, /KUBE-/);
      assert.match(rules, /THEIRS/);
      assert.doesNotMatch(onNode('ip', '-brief', 'link'), /^(fl0|fl\.vxlan|fairlead)/m);
      onNode('nft', 'delete', 'table', 'ip', 'theirs');
      onNode('iptables', '-t', 'nat', '-X', 'THEIRS');
      // A new agent programs everything again, and existing pods get their network back.
      await startAgain();
      await eventually(
        () => cluster.request('client', `http://${service}`, '--count', '30', '--timeout', '3000'),
        ({ failures }) => Object.keys(failures).length === 0,
      );
    });
  });
}

async function modeOfNode(): Promise<string> {
  return await cluster.ask(
    'get',
    'node',
    'node-1',
    '-o',
    'jsonpath={.metadata.annotations.fairlead\\.dev/mode}',
  );
}
