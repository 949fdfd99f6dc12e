import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { type PodNode, startPodNode } from './testing/pod-node.ts';
import { firstAnswer, outFolder } from './testing/script-pods.ts';

// Start, probes and end of a pod's containers, one behaviour per test; the pods of all tests run on one
// node concurrently.

let node: PodNode;
const out = outFolder(() => node.stateDir);
const { shell, server, pod, written, untilWritten } = out;
const ready = (name: string) => node.until(name, (one) => one?.status.conditions?.some(isReady) ?? false);
const untilRemoved = async (folder: string) => {
  const end = Date.now() + 60_000;
  while (existsSync(folder)) {
    assert.ok(Date.now() < end, `${folder} is still there after 60 s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};
const isReady = (one: { type: string; status: string }) => one.type === 'Ready' && one.status === 'True';

before(async () => {
  node = await startPodNode();
  out.make();
  await node.startAgent();
});
after(() => node?.close());

describe('the end of a pod', { concurrency: 4 }, () => {
  test('TERM is sent first, and a container that ends in time is not killed', async () => {
    const script =
      'trap "echo term >> /out/term; sleep 0.3; echo done >> /out/term; exit 0" TERM; echo up; while :; do sleep 0.1; done';
    await node.createPod('term', pod([shell(script)], { terminationGracePeriodSeconds: 30 }));
    await node.untilRunning('term');
    await node.until('term', async () => (await node.logs('term')) === 'up\n');
    await node.removePod('term');
    assert.equal(written('term'), 'term\ndone\n');
  });
  test('KILL is sent after the grace period', async () => {
    const script = 'trap "echo term >> /out/kill" TERM; echo up; while :; do sleep 0.1; done';
    await node.createPod('kill', pod([shell(script)]));
    await node.until('kill', async () => (await node.logs('kill')) === 'up\n');
    await node.removePod('kill', 1);
    assert.equal(written('kill'), 'term\n');
  });
  test('a preStop command runs inside before TERM', async () => {
    const script = 'trap "echo term >> /out/exec; exit 0" TERM; echo up; while :; do sleep 0.1; done';
    const lifecycle = { preStop: { exec: { command: ['sh', '-c', 'sleep 0.3; echo hook >> /out/exec'] } } };
    await node.createPod(
      'hook-exec',
      pod([shell(script, { lifecycle })], { terminationGracePeriodSeconds: 30 }),
    );
    await node.until('hook-exec', async () => (await node.logs('hook-exec')) === 'up\n');
    await node.removePod('hook-exec');
    assert.equal(written('exec'), 'hook\nterm\n');
  });
  test('a preStop sleep delays TERM', async () => {
    const script = 'trap "date +%s%N > /out/slept; exit 0" TERM; echo up; while :; do sleep 0.05; done';
    const lifecycle = { preStop: { sleep: { seconds: 1 } } };
    await node.createPod(
      'hook-sleep',
      pod([shell(script, { lifecycle })], { terminationGracePeriodSeconds: 30 }),
    );
    await node.until('hook-sleep', async () => (await node.logs('hook-sleep')) === 'up\n');
    const asked = BigInt(Date.now()) * 1_000_000n;
    await node.removePod('hook-sleep');
    assert.ok(BigInt(written('slept')) - asked >= 1_000_000_000n);
  });
  test('a preStop request over HTTP is sent to the container', async () => {
    const script = `const fs = require('fs');
      require('http').createServer((q, a) => { fs.appendFileSync('/out/http', q.url + ' ' + q.headers['x-why'] + '\\n'); a.end(); })
        .listen(8080, () => console.log('up'));
      process.on('SIGTERM', () => { fs.appendFileSync('/out/http', 'term\\n'); process.exit(0); });`;
    const httpGet = { path: '/bye', port: 'web', httpHeaders: [{ name: 'X-Why', value: 'stop' }] };
    const container = server(script, {
      lifecycle: { preStop: { httpGet } },
      ports: [{ name: 'web', containerPort: 8080 }],
    });
    await node.createPod('hook-http', pod([container], { terminationGracePeriodSeconds: 30 }));
    await node.until('hook-http', async () => (await node.logs('hook-http')) === 'up\n');
    await node.removePod('hook-http');
    assert.equal(written('http'), '/bye stop\nterm\n');
  });
  test('a terminating pod that finishes its work is reported not ready', async () => {
    const script = 'trap "touch /tmp/stop" TERM; echo up; while :; do sleep 0.1; done';
    const readinessProbe = {
      exec: { command: ['sh', '-c', 'test ! -e /tmp/stop'] },
      periodSeconds: 1,
      failureThreshold: 1,
    };
    await node.createPod('draining', pod([shell(script, { readinessProbe })]));
    await ready('draining');
    await node.api.request('DELETE', `${CORE}/pods/draining`, { gracePeriodSeconds: 30 });
    const { metadata, status } = await node.until(
      'draining',
      (one) => one.metadata.deletionTimestamp && !one.status.conditions.some(isReady),
    );
    assert.ok(metadata.deletionTimestamp);
    assert.equal(status.phase, 'Running');
    assert.ok(status.containerStatuses[0].state.running);
    await node.removePod('draining', 0);
  });
  test('a second deletion shortens the grace period, and the preStop hook with it', async () => {
    const stubborn = shell('trap "echo term >> /out/shorter" TERM; echo up; while :; do sleep 0.1; done');
    const hooked = shell('trap "" TERM; exec sleep 1000', {
      name: 'hooked',
      lifecycle: { preStop: { exec: { command: ['sh', '-c', 'echo hook >> /out/hooked; sleep 500'] } } },
    });
    await node.createPod('shorter', pod([stubborn, hooked]));
    await node.until('shorter', async () => (await node.logs('shorter', '?container=main')) === 'up\n');
    await node.api.request('DELETE', `${CORE}/pods/shorter`, { gracePeriodSeconds: 600 });
    await untilWritten('shorter', /term/);
    await untilWritten('hooked', /hook/);
    await node.removePod('shorter', 1);
    assert.equal(written('shorter'), 'term\n');
  });
  for (const [name, first] of [
    ['force', null],
    ['force-later', 600],
  ] as const) {
    test(`a pod deleted by force is killed${first ? ' also while it is being stopped' : ''}`, async () => {
      const script = `trap "" TERM; echo up; while :; do date +%s%N > /out/${name}; sleep 0.1; done`;
      await node.createPod(name, pod([shell(script)], { terminationGracePeriodSeconds: 300 }));
      await node.until(name, async () => (await node.logs(name)) === 'up\n');
      const { metadata } = await node.pod(name);
      if (first !== null)
        await node.api.request('DELETE', `${CORE}/pods/${name}`, { gracePeriodSeconds: first });
      await node.removePod(name, 0);
      await untilRemoved(join(node.stateDir, 'pods', metadata.uid));
    });
  }
  test('activeDeadlineSeconds ends the pod with the reason', async () => {
    await node.createPod('deadline', pod([shell('exec sleep 1000')], { activeDeadlineSeconds: 1 }));
    const failed = await node.until('deadline', (one) => one.status.phase === 'Failed');
    assert.equal(failed.status.reason, 'DeadlineExceeded');
  });
});

describe('probes', { concurrency: 4 }, () => {
  const probe = (action: object, more: object = {}) => ({ ...action, periodSeconds: 1, ...more });
  test('readiness by command follows the result in both directions', async () => {
    const readinessProbe = probe(
      { exec: { command: ['test', '-e', '/out/ready'] } },
      { failureThreshold: 1 },
    );
    await node.createPod('ready-exec', pod([shell('exec sleep 1000', { readinessProbe })]));
    const before = await node.untilRunning('ready-exec');
    assert.equal(before.status.conditions.some(isReady), false);
    await node.kubectl('exec', 'ready-exec', '--', 'touch', '/out/ready');
    await ready('ready-exec');
    await node.kubectl('exec', 'ready-exec', '--', 'rm', '/out/ready');
    await node.until('ready-exec', (one) => !one.status.conditions.some(isReady));
  });
  test('readiness over HTTP: 2xx and 3xx succeed, others fail', async () => {
    const script = `let good = false; require('http').createServer((q, a) => {
      if (q.url === '/flip') good = true; a.writeHead(good ? 302 : 500).end(); }).listen(8080)`;
    const container = server(script, { readinessProbe: probe({ httpGet: { port: 8080, path: '/z' } }) });
    await node.createPod('ready-http', pod([container]));
    const { status } = await node.untilRunning('ready-http');
    assert.equal(status.containerStatuses[0].ready, false);
    await firstAnswer(`http://${status.podIP}:8080/flip`, { redirect: 'manual' });
    await ready('ready-http');
  });
  test('readiness by a TCP connection', async () => {
    const container = server(
      `setTimeout(() => require('net').createServer((s) => s.end()).listen(7000), 500)`,
      {
        readinessProbe: probe({ tcpSocket: { port: 7000 } }),
      },
    );
    await node.createPod('ready-tcp', pod([container]));
    await ready('ready-tcp');
  });
  test('readiness by the gRPC health service', async () => {
    const script = `const h = require('http2').createServer(); h.on('stream', (s, headers) => {
      const parts = []; s.on('data', (d) => parts.push(d)).on('end', () => {
        const good = headers[':path'] === '/grpc.health.v1.Health/Check' && Buffer.concat(parts).toString().endsWith('db');
        s.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
        s.on('wantTrailers', () => s.sendTrailers({ 'grpc-status': '0' }));
        s.end(Buffer.from([0, 0, 0, 0, 2, 8, good ? 1 : 2])); }); }); h.listen(5000)`;
    const grpc = (service: string) => ({ readinessProbe: probe({ grpc: { port: 5000, service } }) });
    await node.createPod('ready-grpc', pod([server(script, grpc('db'))]));
    await node.createPod('unready-grpc', pod([server(script, grpc('other'))]));
    await ready('ready-grpc');
    const { status } = await node.untilRunning('unready-grpc');
    assert.equal(status.conditions.some(isReady), false);
  });
  test('a failed liveness probe restarts the container, with the event and the reason', async () => {
    const livenessProbe = probe(
      { exec: { command: ['sh', '-c', 'echo unwell; false'] } },
      { failureThreshold: 1, initialDelaySeconds: 1 },
    );
    await node.createPod('live', pod([shell('exec sleep 1000', { livenessProbe })]));
    const again = await node.until('live', (one) => one.status.containerStatuses?.[0].restartCount > 0);
    assert.equal(again.status.containerStatuses[0].lastState.terminated.exitCode, 137);
    const events = await node.api.request('GET', `${CORE}/events`);
    const unhealthy = events.body.items.find(
      (event: { reason: string; involvedObject: { name: string } }) =>
        event.reason === 'Unhealthy' && event.involvedObject.name === 'live',
    );
    assert.equal(unhealthy?.message, 'Liveness probe failed: unwell');
  });
  test('the liveness probe waits for the startup probe', async () => {
    const container = shell('sleep 1.5; touch /out/started; exec sleep 1000', {
      startupProbe: probe({ exec: { command: ['test', '-e', '/out/started'] } }, { failureThreshold: 20 }),
      livenessProbe: probe({ exec: { command: ['test', '-e', '/out/started'] } }, { failureThreshold: 1 }),
    });
    await node.createPod('startup', pod([container]));
    const begun = await node.untilRunning('startup');
    assert.equal(begun.status.containerStatuses[0].started, false);
    const up = await ready('startup');
    assert.equal(up.status.containerStatuses[0].restartCount, 0);
    assert.equal(up.status.containerStatuses[0].started, true);
  });
  test('a command that exceeds its timeout fails and is killed', async () => {
    const readinessProbe = probe({ exec: { command: ['sh', '-c', 'echo $$ >> /out/slow; exec sleep 777'] } });
    await node.createPod('slow', pod([shell('exec sleep 1000', { readinessProbe })]));
    await node.untilRunning('slow');
    await untilWritten('slow', /\n.*\n.*\n/);
    const { stdout } = await node.kubectl(
      'exec',
      'slow',
      '--',
      'sh',
      '-c',
      'cat /proc/[0-9]*/cmdline | tr "\\0" " "',
    );
    assert.ok(stdout.split('sleep 777').length <= 3, stdout);
  });
});

describe('the order of containers, and restarts', { concurrency: 4 }, () => {
  test('init containers run in turn, before the others', async () => {
    await node.createPod('init', {
      ...pod([shell('echo main >> /out/init; exec sleep 1000')]),
      initContainers: [
        shell('echo one >> /out/init', { name: 'one' }),
        shell('echo two >> /out/init', { name: 'two' }),
      ],
    });
    const up = await ready('init');
    await untilWritten('init', /main/);
    assert.equal(written('init'), 'one\ntwo\nmain\n');
    assert.equal(up.status.initContainerStatuses[1].state.terminated.reason, 'Completed');
  });
  test('an init container that fails is restarted, and the others wait', async () => {
    await node.createPod('init-fails', {
      ...pod([shell('exec sleep 1000')]),
      initContainers: [
        shell('test -e /out/second && exit 0; touch /out/second; sleep 0.5; exit 3', { name: 'one' }),
      ],
    });
    const waiting = await node.until(
      'init-fails',
      (one) => one.status.initContainerStatuses?.[0].state.running,
    );
    assert.equal(waiting.status.phase, 'Pending');
    assert.equal(waiting.status.containerStatuses[0].state.waiting.reason, 'PodInitializing');
    const up = await ready('init-fails');
    assert.equal(up.status.initContainerStatuses[0].restartCount, 1);
  });
  test('with restartPolicy Never a failed init container fails the pod', async () => {
    await node.createPod('init-never', {
      ...pod([shell('echo never >> /out/init-never')], { restartPolicy: 'Never' }),
      initContainers: [shell('exit 3', { name: 'one' })],
    });
    await node.until('init-never', (one) => one.status.phase === 'Failed');
    assert.equal(written('init-never'), '');
  });
  test('a sidecar starts before the other containers and ends after them', async () => {
    const sidecar = shell(
      'trap "echo side-end >> /out/side; exit 0" TERM; echo side >> /out/side; while :; do sleep 0.1; done',
      {
        name: 'side',
        restartPolicy: 'Always',
        startupProbe: { exec: { command: ['test', '-e', '/out/side'] }, periodSeconds: 1 },
      },
    );
    await node.createPod('sidecar', {
      ...pod([shell('echo work >> /out/side; sleep 0.3; echo end >> /out/side')], {
        restartPolicy: 'Never',
        terminationGracePeriodSeconds: 10,
      }),
      initContainers: [sidecar],
    });
    await node.until('sidecar', (one) => one.status.phase === 'Succeeded');
    assert.equal(await untilWritten('side', /side-end/), 'side\nwork\nend\nside-end\n');
  });
  for (const [policy, code, phase] of [
    ['Never', 0, 'Succeeded'],
    ['Never', 5, 'Failed'],
    ['OnFailure', 0, 'Succeeded'],
  ] as const) {
    test(`restartPolicy ${policy}, exit code ${code}: the pod has ${phase}; its logs stay, and its address is released`, async () => {
      const name = `${policy}-${code}`.toLowerCase();
      await node.createPod(name, pod([shell(`echo said; exit ${code}`)], { restartPolicy: policy }));
      const done = await node.until(name, (one) => one.status.phase === phase);
      assert.equal(done.status.containerStatuses[0].state.terminated.exitCode, code);
      assert.equal(done.status.containerStatuses[0].restartCount, 0);
      assert.equal(await node.logs(name), 'said\n');
    });
  }
  test('restartPolicy OnFailure restarts a failed container until it succeeds', async () => {
    const script = 'echo x >> /out/tries; [ $(wc -l < /out/tries) = 2 ]';
    await node.createPod('onfailure', pod([shell(script)], { restartPolicy: 'OnFailure' }));
    const done = await node.until('onfailure', (one) => one.status.phase === 'Succeeded');
    assert.equal(done.status.containerStatuses[0].restartCount, 1);
  });
  test('a container that keeps ending is restarted with increasing delays: CrashLoopBackOff', async () => {
    const script =
      'echo "run $(wc -l < /out/crash)"; echo x >> /out/crash; echo why > /dev/termination-log; exit 9';
    await node.createPod('crash', pod([shell(`touch /out/crash; ${script}`)]));
    const loop = await node.until(
      'crash',
      (one) => one.status.containerStatuses?.[0].state.waiting?.reason === 'CrashLoopBackOff',
    );
    const [status] = loop.status.containerStatuses;
    assert.match(
      status.state.waiting.message,
      /^back-off 10s restarting failed container=main pod=crash_default/,
    );
    assert.equal(status.restartCount, 1);
    assert.equal(status.lastState.terminated.exitCode, 9);
    assert.equal(status.lastState.terminated.message, 'why\n');
    assert.equal(loop.status.phase, 'Running');
    assert.equal(await node.logs('crash'), 'run 1\n');
    assert.equal(await node.logs('crash', '?previous=true'), 'run 1\n');
  });
  test('a postStart hook runs inside; one that fails restarts the container', async () => {
    const lifecycle = {
      postStart: { exec: { command: ['sh', '-c', 'test -e /out/post && exit 0; touch /out/post; exit 1'] } },
    };
    await node.createPod('post', pod([shell('exec sleep 1000', { lifecycle })]));
    const again = await node.until('post', (one) => one.status.containerStatuses?.[0].restartCount === 1);
    assert.equal(again.status.containerStatuses[0].lastState.terminated.exitCode, 137);
  });
});
