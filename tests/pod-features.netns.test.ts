import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { type PodNode, startPodNode } from './support/pod-node.ts';

// What a pod's spec can ask for, one behaviour a test; the pods of all tests run on one node side by side.

let node: PodNode;
let out: string;

before(async () => {
  node = await startPodNode();
  out = join(node.stateDir, 'out');
  mkdirSync(out);
  await node.startAgent();
});
after(() => node?.close());

/** A container that runs a shell script and sees the folder `out` as /out. */
const shell = (script: string, more: object = {}) => ({
  name: 'main',
  image: 'host',
  command: ['sh', '-c', script],
  volumeMounts: [{ name: 'out', mountPath: '/out' }],
  ...more,
});
const pod = (containers: object[], more: object = {}) => ({
  containers,
  volumes: [{ name: 'out', hostPath: { path: out } }],
  ...more,
});
const server = (script: string, more: object = {}) =>
  shell('', { image: 'node', command: ['test-node', '-e', script], ...more });
const written = (file: string) => {
  try {
    return readFileSync(join(out, file), 'utf8');
  } catch {
    // Not written yet.
    return '';
  }
};
const logs = async (name: string, query = '') =>
  (await node.api.request('GET', `${CORE}/pods/${name}/log${query}`)).body;
const running = (name: string) => node.until(name, (one) => one?.status.phase === 'Running');
const ready = (name: string) => node.until(name, (one) => one?.status.conditions?.some(isReady) ?? false);
const isReady = (one: { type: string; status: string }) => one.type === 'Ready' && one.status === 'True';
const remove = async (name: string, seconds?: number) => {
  const query = seconds === undefined ? '' : `?gracePeriodSeconds=${seconds}`;
  await node.api.request('DELETE', `${CORE}/pods/${name}${query}`);
  await node.until(name, (one) => one === null);
};
const untilWritten = async (file: string, what: RegExp) => {
  for (const end = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    const text = written(file);
    if (what.test(text)) return text;
    if (Date.now() > end) throw new Error(`waited 60 s for ${what} in ${file}: ${JSON.stringify(text)}`);
  }
};

describe('the end of a pod', { concurrency: 4 }, () => {
  test('TERM comes first, and what finishes in time is not killed', async () => {
    const script =
      'trap "echo term >> /out/term; sleep 0.3; echo done >> /out/term; exit 0" TERM; echo up; while :; do sleep 0.1; done';
    await node.createPod('term', pod([shell(script)], { terminationGracePeriodSeconds: 30 }));
    await running('term');
    await node.until('term', async () => (await logs('term')) === 'up\n');
    await remove('term');
    assert.equal(written('term'), 'term\ndone\n');
  });
  test('after the grace period comes KILL', async () => {
    const script = 'trap "echo term >> /out/kill" TERM; echo up; while :; do sleep 0.1; done';
    await node.createPod('kill', pod([shell(script)]));
    await node.until('kill', async () => (await logs('kill')) === 'up\n');
    await remove('kill', 1);
    assert.equal(written('kill'), 'term\n');
  });
  test('a preStop command runs inside before TERM', async () => {
    const script = 'trap "echo term >> /out/exec; exit 0" TERM; echo up; while :; do sleep 0.1; done';
    const lifecycle = { preStop: { exec: { command: ['sh', '-c', 'sleep 0.3; echo hook >> /out/exec'] } } };
    await node.createPod(
      'hook-exec',
      pod([shell(script, { lifecycle })], { terminationGracePeriodSeconds: 30 }),
    );
    await node.until('hook-exec', async () => (await logs('hook-exec')) === 'up\n');
    await remove('hook-exec');
    assert.equal(written('exec'), 'hook\nterm\n');
  });
  test('a preStop sleep delays TERM', async () => {
    const script = 'trap "date +%s%N > /out/slept; exit 0" TERM; echo up; while :; do sleep 0.05; done';
    const lifecycle = { preStop: { sleep: { seconds: 1 } } };
    await node.createPod(
      'hook-sleep',
      pod([shell(script, { lifecycle })], { terminationGracePeriodSeconds: 30 }),
    );
    await node.until('hook-sleep', async () => (await logs('hook-sleep')) === 'up\n');
    const asked = BigInt(Date.now()) * 1_000_000n;
    await remove('hook-sleep');
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
    await node.until('hook-http', async () => (await logs('hook-http')) === 'up\n');
    await remove('hook-http');
    assert.equal(written('http'), '/bye stop\nterm\n');
  });
  test('a pod that is told to go at once is killed at once', async () => {
    await node.createPod(
      'force',
      pod([shell('trap "" TERM; while :; do sleep 0.1; done')], { terminationGracePeriodSeconds: 300 }),
    );
    await running('force');
    await remove('force', 0);
  });
  test('activeDeadlineSeconds ends the pod and says so', async () => {
    await node.createPod('deadline', pod([shell('exec sleep 1000')], { activeDeadlineSeconds: 1 }));
    const failed = await node.until('deadline', (one) => one.status.phase === 'Failed');
    assert.equal(failed.status.reason, 'DeadlineExceeded');
  });
});

describe('probes', { concurrency: 4 }, () => {
  const probe = (action: object, more: object = {}) => ({ ...action, periodSeconds: 1, ...more });
  test('readiness by command: follows the answer both ways', async () => {
    const readinessProbe = probe(
      { exec: { command: ['test', '-e', '/out/ready'] } },
      { failureThreshold: 1 },
    );
    await node.createPod('ready-exec', pod([shell('exec sleep 1000', { readinessProbe })]));
    const before = await running('ready-exec');
    assert.equal(before.status.conditions.some(isReady), false);
    await node.kubectl('exec', 'ready-exec', '--', 'touch', '/out/ready');
    await ready('ready-exec');
    await node.kubectl('exec', 'ready-exec', '--', 'rm', '/out/ready');
    await node.until('ready-exec', (one) => !one.status.conditions.some(isReady));
  });
  test('readiness over HTTP: 2xx and 3xx are good, others not', async () => {
    const script = `let good = false; require('http').createServer((q, a) => {
      if (q.url === '/flip') good = true; a.writeHead(good ? 302 : 500).end(); }).listen(8080)`;
    const container = server(script, { readinessProbe: probe({ httpGet: { port: 8080, path: '/z' } }) });
    await node.createPod('ready-http', pod([container]));
    const { status } = await running('ready-http');
    assert.equal(status.containerStatuses[0].ready, false);
    await fetchUntilAnswered(`http://${status.podIP}:8080/flip`);
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
    assert.equal((await node.pod('unready-grpc')).status.conditions.some(isReady), false);
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
  test('liveness waits for the startup probe', async () => {
    const container = shell('sleep 1.5; touch /out/started; exec sleep 1000', {
      startupProbe: probe({ exec: { command: ['test', '-e', '/out/started'] } }, { failureThreshold: 20 }),
      livenessProbe: probe({ exec: { command: ['test', '-e', '/out/started'] } }, { failureThreshold: 1 }),
    });
    await node.createPod('startup', pod([container]));
    const begun = await running('startup');
    assert.equal(begun.status.containerStatuses[0].started, false);
    const up = await ready('startup');
    assert.equal(up.status.containerStatuses[0].restartCount, 0);
    assert.equal(up.status.containerStatuses[0].started, true);
  });
  test('a command that takes longer than its time is a failure, and is ended', async () => {
    const readinessProbe = probe({ exec: { command: ['sh', '-c', 'echo $$ >> /out/slow; exec sleep 777'] } });
    await node.createPod('slow', pod([shell('exec sleep 1000', { readinessProbe })]));
    await running('slow');
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
  test('init containers run one after the other, before the others', async () => {
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
  test('an init container that fails is tried again; the others wait', async () => {
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
  test('a sidecar runs beside, is up before, and ends after the pod’s work is done', async () => {
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
    test(`restartPolicy ${policy}, exit code ${code}: the pod has ${phase}; its logs stay, its address goes`, async () => {
      const name = `${policy}-${code}`.toLowerCase();
      await node.createPod(name, pod([shell(`echo said; exit ${code}`)], { restartPolicy: policy }));
      const done = await node.until(name, (one) => one.status.phase === phase);
      assert.equal(done.status.containerStatuses[0].state.terminated.exitCode, code);
      assert.equal(done.status.containerStatuses[0].restartCount, 0);
      assert.equal(await logs(name), 'said\n');
    });
  }
  test('restartPolicy OnFailure starts a failed container again until it is well', async () => {
    const script = 'echo x >> /out/tries; [ $(wc -l < /out/tries) = 2 ]';
    await node.createPod('onfailure', pod([shell(script)], { restartPolicy: 'OnFailure' }));
    const done = await node.until('onfailure', (one) => one.status.phase === 'Succeeded');
    assert.equal(done.status.containerStatuses[0].restartCount, 1);
  });
  test('a container that keeps ending is started again slower and slower: CrashLoopBackOff', async () => {
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
    assert.equal(await logs('crash'), 'run 1\n');
    assert.equal(await logs('crash', '?previous=true'), 'run 1\n');
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

describe('volumes and variables', { concurrency: 4 }, () => {
  before(async () => {
    await node.api.request('POST', `${CORE}/configmaps`, {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'settings' },
      data: { colour: 'blue', 'app.conf': 'a=1\n' },
      binaryData: { raw: Buffer.from([0, 255]).toString('base64') },
    });
    await node.api.request('POST', `${CORE}/secrets`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'password' },
      stringData: { word: 'hush' },
    });
  });
  test('every kind of volume holds what it should', async () => {
    const mounts = ['empty', 'memory', 'config', 'chosen', 'secret', 'all', 'down'];
    const volumes = [
      { name: 'out', hostPath: { path: out, type: 'Directory' } },
      { name: 'empty', emptyDir: {} },
      { name: 'memory', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
      { name: 'config', configMap: { name: 'settings' } },
      {
        name: 'chosen',
        configMap: { name: 'settings', items: [{ key: 'colour', path: 'deep/one', mode: 0o600 }] },
      },
      { name: 'secret', secret: { secretName: 'password', defaultMode: 0o400 } },
      {
        name: 'all',
        projected: {
          sources: [
            { configMap: { name: 'settings', items: [{ key: 'colour', path: 'c' }] } },
            { secret: { name: 'password', items: [{ key: 'word', path: 's' }] } },
            { downwardAPI: { items: [{ path: 'n', fieldRef: { fieldPath: 'metadata.name' } }] } },
            { configMap: { name: 'absent', optional: true } },
          ],
        },
      },
      {
        name: 'down',
        downwardAPI: {
          items: [
            { path: 'labels', fieldRef: { fieldPath: 'metadata.labels' } },
            {
              path: 'cpu',
              resourceFieldRef: { containerName: 'main', resource: 'limits.cpu', divisor: '1m' },
            },
          ],
        },
      },
    ];
    const container = shell('exec sleep 1000', {
      resources: { limits: { cpu: '250m', memory: '64Mi' } },
      volumeMounts: [
        ...mounts.map((name) => ({
          name,
          mountPath: `/v/${name}`,
          ...(name === 'config' ? { readOnly: true } : {}),
        })),
        { name: 'config', mountPath: '/v/single', subPath: 'app.conf' },
        { name: 'empty', mountPath: '/v/sub', subPath: 'made/here' },
        { name: 'empty', mountPath: '/v/expr', subPathExpr: 'of-$(NAME)' },
      ],
      env: [{ name: 'NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
    });
    await node.createPod('volumes', { containers: [container], volumes }, { labels: { tier: 'web' } });
    await running('volumes');
    const run = async (script: string) => {
      const { stdout, stderr } = await node.kubectl('exec', 'volumes', '--', 'sh', '-c', script);
      return stdout + stderr;
    };
    assert.equal(await run('cat /v/config/colour; od -An -tx1 /v/config/raw'), 'blue 00 ff\n');
    assert.equal(await run('cat /v/chosen/deep/one; stat -Lc " %a" /v/chosen/deep/one'), 'blue 600\n');
    assert.equal(await run('cat /v/secret/word; stat -Lc " %a" /v/secret/word'), 'hush 400\n');
    assert.equal(await run('cd /v/all; cat c s n; ls'), 'bluehushvolumesc\nn\ns\n');
    assert.equal(await run('cat /v/down/labels /v/down/cpu'), 'tier="web"250');
    assert.equal(await run('cat /v/single'), 'a=1\n');
    assert.equal(
      await run('echo x > /v/sub/f; echo y > /v/expr/g; cat /v/empty/made/here/f /v/empty/of-volumes/g'),
      'x\ny\n',
    );
    assert.match(await run('echo x > /v/config/new'), /Read-only/);
    assert.match(
      await run('stat -fc %T /v/memory; head -c 3000000 /dev/zero > /v/memory/big'),
      /tmpfs\n.*No space/s,
    );
  });
  test('two containers share an emptyDir; a fresh pod of the name has an empty one', async () => {
    const volumeMounts = [{ name: 'data', mountPath: '/data' }];
    const spec = {
      containers: [
        shell('echo hi > /data/f; exec sleep 1000', { volumeMounts }),
        shell('until cat /data/f; do sleep 0.05; done; exec sleep 1000', { name: 'reader', volumeMounts }),
      ],
      volumes: [{ name: 'data', emptyDir: {} }],
    };
    await node.createPod('share', spec);
    await running('share');
    await node.until('share', async () => /hi/.test(await logs('share', '?container=reader')));
    await remove('share', 0);
  });
  test('variables come from fields, resources, configMaps, secrets and Services', async () => {
    await node.api.request('POST', `${CORE}/services`, {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'my-db' },
      spec: { clusterIP: '10.96.0.77', ports: [{ name: 'sql', port: 5432 }] },
    });
    const field = (fieldPath: string) => ({ valueFrom: { fieldRef: { fieldPath } } });
    const container = shell('env; echo ---; exec sleep 1000', {
      args: [],
      envFrom: [
        { prefix: 'S_', secretRef: { name: 'password' } },
        { configMapRef: { name: 'nothing', optional: true } },
      ],
      env: [
        { name: 'POD', ...field('metadata.name') },
        { name: 'IP', ...field('status.podIP') },
        { name: 'HOST', ...field('status.hostIP') },
        { name: 'NODE', ...field('spec.nodeName') },
        { name: 'LABEL', ...field("metadata.labels['tier']") },
        { name: 'MEMORY', valueFrom: { resourceFieldRef: { resource: 'limits.memory', divisor: '1Mi' } } },
        { name: 'COLOUR', valueFrom: { configMapKeyRef: { name: 'settings', key: 'colour' } } },
        { name: 'WORD', valueFrom: { secretKeyRef: { name: 'password', key: 'word' } } },
        { name: 'BOTH', value: '$(COLOUR)-$(WORD)-$(UNKNOWN)-$$(WORD)' },
      ],
      resources: { limits: { memory: '64Mi' } },
    });
    await node.createPod('env', pod([container]), { labels: { tier: 'web' } });
    const { status } = await running('env');
    await node.until('env', async () => /---/.test(await logs('env')));
    const env = String(await logs('env')).split('\n');
    for (const line of [
      'POD=env',
      `IP=${status.podIP}`,
      `HOST=${status.hostIP}`,
      'NODE=node-1',
      'LABEL=web',
      'MEMORY=64',
      'COLOUR=blue',
      'WORD=hush',
      'S_word=hush',
      'BOTH=blue-hush-$(UNKNOWN)-$(WORD)',
      'MY_DB_SERVICE_HOST=10.96.0.77',
      'MY_DB_SERVICE_PORT_SQL=5432',
      'MY_DB_PORT_5432_TCP=tcp://10.96.0.77:5432',
      'KUBERNETES_SERVICE_HOST=10.96.0.1',
    ]) {
      assert.ok(env.includes(line), `${line} is missing`);
    }
  });
  test('a container whose configMap is missing waits, names it, and starts once it is there', async () => {
    const container = shell('exec sleep 1000', { envFrom: [{ configMapRef: { name: 'later' } }] });
    await node.createPod('missing', pod([container]));
    const waiting = await node.until(
      'missing',
      (one) => one.status.containerStatuses?.[0].state.waiting?.reason === 'CreateContainerConfigError',
    );
    assert.equal(waiting.status.containerStatuses[0].state.waiting.message, 'configmap "later" not found');
    const data = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'later' }, data: {} };
    await node.api.request('POST', `${CORE}/configmaps`, data);
    await running('missing');
  });
  test('users, groups, capabilities and a read-only root are as the securityContext says', async () => {
    const container = shell('exec sleep 1000', {
      securityContext: {
        runAsUser: 1234,
        runAsGroup: 1235,
        readOnlyRootFilesystem: true,
        allowPrivilegeEscalation: false,
        capabilities: { drop: ['ALL'] },
      },
      volumeMounts: [{ name: 'data', mountPath: '/data' }],
    });
    await node.createPod('secure', {
      containers: [container],
      securityContext: {
        fsGroup: 4321,
        supplementalGroups: [77],
        sysctls: [
          { name: 'net.ipv4.ip_default_ttl', value: '99' },
          { name: 'kernel.shmmni', value: '100' },
        ],
      },
      volumes: [{ name: 'data', emptyDir: {} }],
    });
    await running('secure');
    const script =
      'id -u; id -g; id -G; touch /x 2>&1; touch /data/f && stat -c %g /data/f; grep -h -e CapEff -e NoNewPrivs /proc/self/status; cat /proc/sys/net/ipv4/ip_default_ttl /proc/sys/kernel/shmmni';
    const { stdout } = await node.kubectl('exec', 'secure', '--', 'sh', '-c', script);
    assert.match(
      stdout,
      /^1234\n1235\n1235 77 4321\n.*Read-only.*\n4321\nCapEff:\t0+\nNoNewPrivs:\t1\n99\n100\n$/,
    );
  });
});

describe('logs and networks', { concurrency: 4 }, () => {
  test('logs: follow to the end, tail, since, timestamps, limits', async () => {
    const script = 'echo one; echo two; printf three; sleep 0.3; echo; echo four; exit 0';
    await node.createPod('logs', pod([shell(script)], { restartPolicy: 'Never' }));
    await node.until('logs', (one) => one?.status.phase !== 'Pending');
    const follow = node.startKubectl(['logs', '-f', 'logs']);
    let followed = '';
    follow.stdout?.on('data', (text) => {
      followed += text;
    });
    await new Promise((resolve) => follow.once('close', resolve));
    assert.equal(followed, 'one\ntwo\nthree\nfour\n');
    await node.until('logs', (one) => one.status.phase === 'Succeeded');
    const kubectl = async (...args: string[]) => (await node.kubectl('logs', 'logs', ...args)).stdout;
    assert.equal(await kubectl('--tail=2'), 'three\nfour\n');
    assert.equal(await kubectl('--tail=0'), '');
    assert.equal(await kubectl('--limit-bytes=5'), 'one\nt');
    assert.match(await kubectl('--timestamps', '--tail=1'), /^20[0-9-]+T[0-9:.]+(Z|[+-][0-9:]+) four\n$/);
    const since = await kubectl('--since=1h');
    assert.equal(since, 'one\ntwo\nthree\nfour\n');
    const [stamp = ''] = (await kubectl('--timestamps', '--tail=1')).split(' ');
    // kubectl sends whole seconds.
    const sinceTime = async (ms: number) =>
      await kubectl(`--since-time=${new Date(Date.parse(stamp) + ms).toISOString()}`);
    assert.match(await sinceTime(0), /^(((one\n)?two\n)?three\n)?four\n$/);
    assert.equal(await sinceTime(1000), '');
    const none = await node.kubectl('logs', 'logs', '--previous');
    assert.match(none.stderr, /previous terminated container "main" in pod "logs" not found/);
  });
  test("hostNetwork: the pod is in the node's network, beside other pods' names", async () => {
    await node.createPod(
      'host-net',
      pod([shell('hostname; ip -o -4 addr show; exec sleep 1000')], { hostNetwork: true }),
    );
    const { status } = await running('host-net');
    assert.equal(status.podIP, status.hostIP);
    await node.until('host-net', async () => /172\.30\.9\.11/.test(await logs('host-net')));
  });
  test('hosts and resolver: aliases, dnsPolicy and dnsConfig', async () => {
    await node.createPod(
      'names',
      pod([shell('cat /etc/hosts /etc/resolv.conf; exec sleep 1000')], {
        hostAliases: [{ ip: '192.0.2.7', hostnames: ['seven', 'siete'] }],
        dnsPolicy: 'None',
        dnsConfig: {
          nameservers: ['192.0.2.53'],
          searches: ['a.test'],
          options: [{ name: 'ndots', value: '2' }],
        },
        hostname: 'called',
        subdomain: 'sub',
      }),
    );
    const { status } = await running('names');
    const text = await node
      .until('names', async () => /options/.test(await logs('names')))
      .then(() => logs('names'));
    assert.match(String(text), /192\.0\.2\.7\tseven\tsiete/);
    assert.match(
      String(text),
      new RegExp(`${status.podIP}\tcalled\\.sub\\.default\\.svc\\.cluster\\.local\tcalled`),
    );
    assert.match(String(text), /search a\.test\nnameserver 192\.0\.2\.53\noptions ndots:2\n$/);
  });
  test('kubectl cp copies both ways', async () => {
    await node.createPod('copy', pod([shell('exec sleep 1000')]));
    await running('copy');
    const file = join(node.stateDir, 'ca.pem');
    const there = await node.kubectl('cp', file, 'copy:/home/there');
    assert.equal(there.code, 0, there.stderr);
    const back = join(node.stateDir, 'back.pem');
    assert.equal((await node.kubectl('cp', 'copy:/home/there', back)).code, 0);
    assert.equal(readFileSync(back, 'utf8'), readFileSync(file, 'utf8'));
    assert.equal(statSync('/home/there', { throwIfNoEntry: false }), undefined);
  });
});

async function fetchUntilAnswered(url: string): Promise<void> {
  for (const end = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    try {
      await fetch(url, { redirect: 'manual' });
      return;
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}
