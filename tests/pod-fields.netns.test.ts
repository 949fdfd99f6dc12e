import assert from 'node:assert/strict';
import { readFileSync, readlinkSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { type PodNode, startPodNode } from './testing/pod-node.ts';
import { firstAnswer, server, shell } from './testing/script-pods.ts';

// Fields of pods that affect the node or each other: ports of the node, its namespaces, storage, a change
// of image.

let node: PodNode;

before(async () => {
  node = await startPodNode();
  await node.startAgent();
});
after(() => node?.close());

const SLEEP = 'exec sleep 1000';
const failed = (name: string) => node.until(name, (one) => one?.status.phase === 'Failed');
const logs = (name: string, query = '?container=main') => node.logs(name, query);
const logged = (name: string, what: RegExp) =>
  node.until(name, async () => what.test(String(await logs(name))));
const exec = async (name: string, ...command: string[]) =>
  (await node.kubectl('exec', name, '-c', 'main', '--', ...command)).stdout;

const textAt = async (url: string) => (await firstAnswer(url)).text();

describe('the node’s ports and namespaces', { concurrency: 4 }, () => {
  const web = (port: number) =>
    server(`require('http').createServer((q, a) => a.end(require('os').hostname())).listen(8000)`, {
      ports: [{ containerPort: 8000, hostPort: port }],
    });
  test('hostPort: answers at the node’s addresses; a second pod with the same port is rejected', async () => {
    await node.createPod('web', { containers: [web(18080)] });
    await node.untilRunning('web');
    assert.equal(await textAt('http://172.30.9.11:18080/'), 'web');
    assert.equal(await textAt('http://127.0.0.1:18080/'), 'web');
    await node.createPod('second', { containers: [web(18080)] });
    const { status } = await failed('second');
    assert.equal(status.reason, 'NodePorts');
    assert.match(status.message, /host port 18080\/TCP is already in use by pod default\/web/);
    await node.removePod('web');
    await node.removePod('second');
    await assert.rejects(fetch('http://172.30.9.11:18080/'));
    await node.createPod('third', { containers: [web(18080)] });
    assert.equal(await textAt('http://172.30.9.11:18080/'), 'third');
  });
  test('an extended resource: awaited until the node has it, and counted', async () => {
    const limits = (count: number) => ({ resources: { limits: { 'example.com/gpu': `${count}` } } });
    await node.createPod('first-gpu', { containers: [shell(SLEEP, limits(2))] });
    await node.until(
      'first-gpu',
      (one) => one.status.containerStatuses?.[0]?.state.waiting?.reason === 'UnsupportedField',
    );
    const { status: patched } = await node.api.request(
      'PATCH',
      '/api/v1/nodes/node-1/status',
      { status: { capacity: { 'example.com/gpu': '3' }, allocatable: { 'example.com/gpu': '3' } } },
      { 'content-type': 'application/merge-patch+json' },
    );
    assert.equal(patched, 200);
    await node.untilRunning('first-gpu');
    await node.createPod('second-gpu', { containers: [shell(SLEEP, limits(2))] });
    const { status } = await failed('second-gpu');
    assert.equal(status.reason, 'OutOfexample.com/gpu');
    assert.match(status.message, /requested: 2, used: 2, capacity: 3$/);
    await node.removePod('first-gpu');
    await node.createPod('third-gpu', { containers: [shell(SLEEP, limits(3))] });
    await node.untilRunning('third-gpu');
  });
  test('hostPID and hostIPC: the machine’s namespaces, otherwise separate ones', async () => {
    await node.createPod('host-ns', { hostPID: true, hostIPC: true, containers: [shell(SLEEP)] });
    await node.createPod('own-ns', { containers: [shell(SLEEP)] });
    await node.untilRunning('host-ns');
    await node.untilRunning('own-ns');
    for (const kind of ['pid', 'ipc']) {
      const here = readlinkSync(`/proc/self/ns/${kind}`);
      assert.equal((await exec('host-ns', 'readlink', `/proc/self/ns/${kind}`)).trim(), here);
      assert.notEqual((await exec('own-ns', 'readlink', `/proc/self/ns/${kind}`)).trim(), here);
    }
  });
  test('setHostnameAsFQDN', async () => {
    await node.createPod('named', {
      hostname: 'db',
      subdomain: 'back',
      setHostnameAsFQDN: true,
      containers: [shell(`cat /proc/sys/kernel/hostname; ${SLEEP}`)],
    });
    await logged('named', /^db\.back\.default\.svc\.cluster\.local\n$/);
  });
});

describe('files', { concurrency: 4 }, () => {
  test('fsGroup reads secrets that only their owner could', async () => {
    await node.api.request('POST', `${CORE}/secrets`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'guarded' },
      stringData: { word: 'hush' },
    });
    await node.createPod('group', {
      securityContext: { runAsUser: 1000, fsGroup: 4321 },
      containers: [shell(`cat /v/word && ${SLEEP}`, { volumeMounts: [{ name: 'v', mountPath: '/v' }] })],
      volumes: [{ name: 'v', secret: { secretName: 'guarded', defaultMode: 0o400 } }],
    });
    await logged('group', /^hush$/);
  });
  test('a privileged container may write /proc/sys; by default it is read-only', async () => {
    const script = `grep -c ' /proc/sys ' /proc/self/mountinfo; ${SLEEP}`;
    await node.createPod('masked', { containers: [shell(script)] });
    await node.createPod('unmasked', {
      containers: [shell(script, { securityContext: { privileged: true } })],
    });
    await logged('masked', /^1\n$/);
    await logged('unmasked', /^0\n$/);
  });
  test('seccompProfile RuntimeDefault blocks dangerous system calls in containers and in commands executed in them', async () => {
    const script = `grep -w Seccomp: /proc/self/status; unshare --user true 2>&1 && echo free || echo kept; ${SLEEP}`;
    const spec = { securityContext: { seccompProfile: { type: 'RuntimeDefault' } } };
    await node.createPod('filtered', {
      ...spec,
      containers: [
        shell(script),
        shell(script, { name: 'own', securityContext: { seccompProfile: { type: 'Unconfined' } } }),
      ],
    });
    await logged('filtered', /^Seccomp:\t2\n(.*\n)*kept\n$/);
    assert.match(await exec('filtered', 'grep', '-w', 'Seccomp:', '/proc/self/status'), /\t2$/m);
    assert.match(String(await logs('filtered', '?container=own')), /^Seccomp:\t0\n/);
  });
  for (const [what, script, fields, message] of [
    [
      'an emptyDir larger than its limit',
      'head -c 3000000 /dev/zero > /data/big',
      {},
      /^Usage of EmptyDir volume "data" exceeds the limit "1Mi"\.$/,
    ],
    [
      'a container over its ephemeral storage',
      'head -c 3000000 /dev/zero > /big',
      { resources: { limits: { 'ephemeral-storage': '2Mi' } } },
      /^Container main exceeded its local ephemeral storage limit "2Mi"\.$/,
    ],
  ] as const) {
    test(`${what} evicts the pod`, async () => {
      const name = what.split(' ')[1]?.toLowerCase() ?? '';
      await node.createPod(name, {
        containers: [
          shell(`${script}; ${SLEEP}`, { ...fields, volumeMounts: [{ name: 'data', mountPath: '/data' }] }),
        ],
        volumes: [{ name: 'data', emptyDir: { sizeLimit: '1Mi' } }],
      });
      const { status } = await failed(name);
      assert.equal(status.reason, 'Evicted');
      assert.match(status.message, message);
    });
  }
});

describe('changes to a running pod', { concurrency: 4 }, () => {
  test('another image: the container is restarted from it, even with restartPolicy Never', async () => {
    await node.createPod('changes', {
      restartPolicy: 'Never',
      containers: [shell(`trap 'exit 0' TERM; echo begun; while :; do sleep 0.1; done`)],
    });
    await logged('changes', /begun/);
    const patch = { spec: { containers: [{ name: 'main', image: 'host:other' }] } };
    const { code, stderr } = await node.kubectl('patch', 'pod', 'changes', '-p', JSON.stringify(patch));
    assert.equal(code, 0, stderr);
    const { status } = await node.until(
      'changes',
      (one) =>
        one.status.containerStatuses?.[0].restartCount === 1 && one.status.containerStatuses[0].state.running,
    );
    assert.equal(status.containerStatuses[0].image, 'host:other');
    assert.equal(status.containerStatuses[0].lastState.terminated.exitCode, 0);
    assert.equal(status.phase, 'Running');
  });
  test('a sandbox whose pause process has died is recreated, with the same address', async () => {
    await node.createPod('fragile', { containers: [shell('echo begun; exec sleep 1000')] });
    const { metadata, status } = await node.untilRunning('fragile');
    const file = (name: string) =>
      JSON.parse(readFileSync(join(node.stateDir, 'pods', metadata.uid, name), 'utf8'));
    process.kill(file('sandbox.json').pause.pid, 'SIGKILL');
    process.kill(file('containers/main/state.json').process.pid, 'SIGKILL');
    const again = await node.until(
      'fragile',
      (one) =>
        one.status.containerStatuses?.[0].restartCount === 1 && one.status.containerStatuses[0].state.running,
    );
    assert.equal(again.status.podIP, status.podIP);
    const inside = await exec('fragile', 'ip', '-o', '-4', 'addr', 'show', 'eth0');
    assert.ok(inside.includes(` ${status.podIP}/`), inside);
  });
  test('a container sees its own control group, read-only', async () => {
    const script = `grep ' /sys/fs/cgroup ' /proc/self/mountinfo | cut -d' ' -f6,9; cat /proc/self/cgroup; ${SLEEP}`;
    await node.createPod('groups', { containers: [shell(script)] });
    await logged('groups', /^ro,\S* cgroup2\n/);
    await logged('groups', /^0::\/$/m);
  });
  test('shareProcessNamespace: the containers see each other, and the pause process reaps zombies', async () => {
    await node.createPod('shared-pids', {
      shareProcessNamespace: true,
      containers: [shell('exec sleep 4322'), { ...shell(SLEEP), name: 'other' }],
    });
    await node.untilRunning('shared-pids');
    const list = 'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " < $f; echo; done';
    const { stdout } = await node.kubectl('exec', 'shared-pids', '-c', 'other', '--', 'sh', '-c', list);
    assert.match(stdout, /^catatonit -P $/m);
    assert.match(stdout, /^sleep 4322 $/m);
  });
  test('a pod on the network of its node has the name of the node', async () => {
    await node.createPod('on-host', { hostNetwork: true, containers: [shell(SLEEP)] });
    await node.untilRunning('on-host');
    assert.equal(
      await exec('on-host', 'cat', '/proc/sys/kernel/hostname', '/etc/hostname'),
      'node-1\nnode-1\n',
    );
  });
  test('without limits, the downward API returns the node’s resources', async () => {
    const resourceFieldRef = { resource: 'limits.cpu', divisor: '1m' };
    const env = [{ name: 'CPU', valueFrom: { resourceFieldRef } }];
    await node.createPod('limits', { containers: [{ ...shell('echo $CPU; exec sleep 1000'), env }] });
    await node.until('limits', async () => (await logs('limits')) === `${availableParallelism() * 1000}\n`);
  });
  test('an ephemeral container can inspect another one, and is rejected alone for unsupported fields', async () => {
    await node.createPod('debugged', { containers: [shell('exec sleep 4321')] });
    await node.untilRunning('debugged');
    const look = {
      ...shell('tr "\\0" " " < /proc/1/cmdline'),
      name: 'look',
      targetContainerName: 'main',
    };
    const odd = {
      ...shell(SLEEP),
      name: 'odd',
      securityContext: { appArmorProfile: { type: 'RuntimeDefault' } },
    };
    const added = await node.api.request(
      'PATCH',
      `${CORE}/pods/debugged/ephemeralcontainers`,
      { spec: { ephemeralContainers: [look, odd] } },
      { 'content-type': 'application/strategic-merge-patch+json' },
    );
    assert.equal(added.status, 200, JSON.stringify(added.body));
    const { status } = await node.until(
      'debugged',
      (one) =>
        one.status.ephemeralContainerStatuses?.[0].state.terminated &&
        one.status.ephemeralContainerStatuses[1].state.waiting?.reason === 'UnsupportedField',
    );
    assert.match(status.ephemeralContainerStatuses[1].state.waiting.message, /appArmorProfile/);
    assert.equal(await logs('debugged', '?container=look'), 'sleep 4321 ');
    assert.equal(status.phase, 'Running');
    assert.equal(status.containerStatuses[0].ready, true);
  });
});
