import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type PodNode, startPodNode } from './testing/pod-node.ts';

let node: PodNode;

before(async () => {
  node = await startPodNode();
  await node.startAgent();
});
after(() => node?.close());

const sleeper = (more: object = {}) => ({ name: 'main', image: 'host', command: ['sleep', '1000'], ...more });

test('a pod of image host runs, has an address and logs, and is removed when deleted', async () => {
  await node.createPod('first', {
    containers: [sleeper({ command: ['sh', '-c', 'echo hello; exec sleep 1000'] })],
  });
  const pod = await node.until('first', (one) => one.status.phase === 'Running');
  assert.match(pod.status.podIP, /^10\.244\.1\./);
  assert.equal(pod.status.containerStatuses[0].ready, true);
  assert.equal(pod.status.qosClass, 'BestEffort');
  assert.deepEqual(
    pod.status.conditions.map((one: { type: string; status: string }) => `${one.type}=${one.status}`).sort(),
    [
      'ContainersReady=True',
      'Initialized=True',
      'PodReadyToStartContainers=True',
      'PodScheduled=True',
      'Ready=True',
    ],
  );
  await node.until('first', async () => (await node.logs('first')) === 'hello\n');
  const { status } = await node.api.request('DELETE', `${CORE}/pods/first`);
  assert.equal(status, 200);
  await node.until('first', (one) => one === null);
});

test('exec runs commands inside: output, exit code, input, environment', async () => {
  await node.createPod('exec', {
    containers: [
      sleeper({
        env: [
          { name: 'GREETING', value: 'hi' },
          { name: 'TWICE', value: '$(GREETING)$(GREETING)' },
        ],
      }),
    ],
  });
  await node.until('exec', (one) => one.status.phase === 'Running');
  const good = await node.kubectl(
    'exec',
    'exec',
    '--',
    'sh',
    '-c',
    'echo $TWICE; hostname; echo oops >&2; exit 7',
  );
  assert.deepEqual(good, {
    code: 7,
    stdout: 'hihi\nexec\n',
    stderr: 'oops\ncommand terminated with exit code 7\n',
  });
  const missing = await node.kubectl('exec', 'exec', '--', 'no-such-program');
  assert.notEqual(missing.code, 0);
  assert.match(missing.stderr, /no-such-program/);
  const cat = node.startKubectl(['exec', '-i', 'exec', '--', 'wc', '-c']);
  let output = '';
  cat.stdout?.on('data', (text) => {
    output += text;
  });
  cat.stdin?.end(Buffer.alloc(3_000_000));
  await new Promise((resolve) => cat.once('close', resolve));
  assert.equal(output.trim(), '3000000');
});

test("exec -it gives a terminal of the size of the user's", async () => {
  const shell = node.startKubectl(['exec', '-it', 'exec', '--', 'sh'], { terminal: true });
  let output = '';
  shell.stdout?.on('data', (text) => {
    output += text;
  });
  shell.stdin?.write('tty; stty size; exit 3\n');
  await new Promise((resolve) => shell.once('close', resolve));
  assert.match(output, /\/dev\/pts\/0/);
  assert.match(output, /exit code 3/);
});

test('attach joins the streams of a running container', async () => {
  await node.createPod('attach', {
    containers: [
      sleeper({ stdin: true, command: ['sh', '-c', 'while read line; do echo "got $line"; done'] }),
    ],
  });
  await node.until('attach', (one) => one.status.phase === 'Running');
  const attached = node.startKubectl(['attach', '-i', 'attach']);
  const line = new Promise((resolve) => {
    attached.stdout?.on('data', (text) => {
      if (String(text).includes('got this')) resolve(String(text));
    });
  });
  const again = setInterval(() => attached.stdin?.write('this\n'), 200);
  assert.match(String(await line), /got this/);
  clearInterval(again);
  attached.kill('SIGKILL');
});

test("port-forward reaches a server on the pod's loopback", async () => {
  const server =
    "require('net').createServer(s=>s.end('served')).listen(8080,'127.0.0.1',()=>console.log('up'))";
  await node.createPod('forward', {
    containers: [sleeper({ image: 'node', command: ['test-node', '-e', server] })],
  });
  // The container runs before its server listens.
  await node.until('forward', async () => (await node.logs('forward')) === 'up\n');
  const forward = node.startKubectl(['port-forward', 'forward', ':8080']);
  const said = await new Promise((resolve) => forward.stdout?.once('data', resolve));
  const local = Number(/:([0-9]+) -> 8080/.exec(String(said))?.[1]);
  const text = await new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port: local });
    let all = '';
    socket.on('data', (data) => {
      all += data;
    });
    socket.on('end', () => resolve(all)).on('error', reject);
  });
  assert.equal(text, 'served');
  forward.kill('SIGKILL');
});

test('containers of a pod share localhost; killed ones are restarted with the same address', async () => {
  const server = "require('net').createServer(s=>s.end('a')).listen(9090)";
  await node.createPod('shared', {
    containers: [
      sleeper({ name: 'a', image: 'node', command: ['test-node', '-e', server] }),
      sleeper({ name: 'b', image: 'node:1' }),
    ],
  });
  const before = await node.until('shared', (one) => one.status.phase === 'Running');
  const client = "require('net').connect(9090,'127.0.0.1').on('data',d=>console.log(String(d)))";
  const answer = await node.kubectl('exec', 'shared', '-c', 'b', '--', 'test-node', '-e', client);
  assert.equal(answer.stdout, 'a\n');
  const taken = await node.kubectl('exec', 'shared', '-c', 'b', '--', 'test-node', '-e', server);
  assert.match(taken.stderr, /EADDRINUSE/);
  for (const name of ['a', 'b']) process.kill(processOf('shared', name), 'SIGKILL');
  const restarted = await node.until('shared', (one) =>
    one.status.containerStatuses.every(
      (status: { restartCount: number; ready: boolean }) => status.restartCount === 1 && status.ready,
    ),
  );
  assert.equal(restarted.status.podIP, before.status.podIP);
  assert.equal(restarted.status.containerStatuses[0].lastState.terminated.exitCode, 137);
});

test('a restarted agent adopts its pods, and detects containers that ended meanwhile', async () => {
  await node.createPod('adopted', {
    containers: [sleeper({ command: ['sh', '-c', 'echo begun; exec sleep 1000'] })],
  });
  await node.createPod('brief', {
    restartPolicy: 'Never',
    containers: [sleeper({ command: ['sh', '-c', 'trap "exit 4" TERM; while :; do sleep 0.1; done'] })],
  });
  const before = await node.until('adopted', (one) => one.status.phase === 'Running');
  await node.until('brief', (one) => one.status.phase === 'Running');
  const pid = processOf('adopted', 'main');
  const briefPid = processOf('brief', 'main');
  await node.killAgent();
  process.kill(pid, 0);
  process.kill(briefPid, 'SIGTERM');
  await eventually(() => !existsSync(`/proc/${briefPid}`));
  await node.startAgent();
  const brief = await node.until('brief', (one) => one.status.phase === 'Failed');
  assert.equal(brief.status.containerStatuses[0].state.terminated.exitCode, 4);
  assert.equal(processOf('adopted', 'main'), pid);
  const after = await node.pod('adopted');
  assert.equal(after.status.podIP, before.status.podIP);
  assert.equal(after.status.containerStatuses[0].restartCount, 0);
  assert.equal((await node.kubectl('exec', 'adopted', '--', 'echo', 'well')).stdout, 'well\n');
  assert.equal(await node.logs('adopted'), 'begun\n');
});

test('a pod of an unknown image waits and reports the reason; one with an unsupported field names the field', async () => {
  await node.createPod('unknown', { containers: [sleeper({ image: 'registry.invalid/nothing:1' })] });
  await node.createPod('field', {
    hostUsers: false,
    os: { name: 'linux' },
    containers: [sleeper({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } })],
  });
  const unknown = await node.until('unknown', (one) =>
    /ErrImagePull|ImagePullBackOff/.test(one.status.containerStatuses?.[0]?.state.waiting?.reason),
  );
  assert.match(unknown.status.containerStatuses[0].state.waiting.message, /registry\.invalid/);
  const refused = await node.until(
    'field',
    (one) => one.status.containerStatuses?.[0]?.state.waiting?.reason === 'UnsupportedField',
  );
  // Not Failed: its owner would create the next one at once.
  assert.equal(refused.status.phase, 'Pending');
  assert.match((await node.kubectl('get', 'pod', 'field')).stdout, /^field +0\/1 +UnsupportedField /m);
  const { message } = refused.status.containerStatuses[0].state.waiting;
  assert.match(message, /spec\.hostUsers=false/);
  assert.match(message, /spec\.containers\[0\]\.securityContext\.appArmorProfile\.type=RuntimeDefault/);
  assert.doesNotMatch(message, /spec\.os/);
});

function processOf(pod: string, container: string): number {
  for (const uid of readdirSync(join(node.stateDir, 'pods'))) {
    const folder = join(node.stateDir, 'pods', uid);
    const object = JSON.parse(readFileSync(join(folder, 'pod.json'), 'utf8'));
    if (object.metadata.name !== pod) continue;
    return JSON.parse(readFileSync(join(folder, 'containers', container, 'state.json'), 'utf8')).process.pid;
  }
  throw new Error(`pod ${pod} is not on the node`);
}
