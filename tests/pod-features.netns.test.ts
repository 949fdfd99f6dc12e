import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CORE } from '../src/apiserver/testing/api.ts';
import { type PodNode, startPodNode } from './testing/pod-node.ts';
import { outFolder } from './testing/script-pods.ts';

// The environment of a pod's containers: volumes, variables, users, logs and networks. The pods of all
// tests run on one node concurrently.

let node: PodNode;
const out = outFolder(() => node.stateDir);
const { shell, pod } = out;

before(async () => {
  node = await startPodNode();
  out.make();
  await node.startAgent();
});
after(() => node?.close());

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
  test('every kind of volume has the expected contents', async () => {
    const mounts = ['empty', 'memory', 'config', 'chosen', 'secret', 'all', 'down'];
    const volumes = [
      { name: 'out', hostPath: { path: out.path, type: 'Directory' } },
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
    await node.untilRunning('volumes');
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
  test('two containers share an emptyDir; a new pod of the same name has an empty one', async () => {
    const volumeMounts = [{ name: 'data', mountPath: '/data' }];
    const spec = {
      containers: [
        shell('echo hi > /data/f; exec sleep 1000', { volumeMounts }),
        shell('until cat /data/f; do sleep 0.05; done; exec sleep 1000', { name: 'reader', volumeMounts }),
      ],
      volumes: [{ name: 'data', emptyDir: {} }],
    };
    await node.createPod('share', spec);
    await node.untilRunning('share');
    await node.until('share', async () => /hi/.test(await node.logs('share', '?container=reader')));
    await node.removePod('share', 0);
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
    const { status } = await node.untilRunning('env');
    await node.until('env', async () => /---/.test(await node.logs('env')));
    const env = String(await node.logs('env')).split('\n');
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
  test('a container whose configMap is missing waits, reports its name, and starts once it exists', async () => {
    const container = shell('exec sleep 1000', { envFrom: [{ configMapRef: { name: 'later' } }] });
    await node.createPod('missing', pod([container]));
    const waiting = await node.until(
      'missing',
      (one) => one.status.containerStatuses?.[0].state.waiting?.reason === 'CreateContainerConfigError',
    );
    assert.equal(waiting.status.containerStatuses[0].state.waiting.message, 'configmap "later" not found');
    const data = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'later' }, data: {} };
    await node.api.request('POST', `${CORE}/configmaps`, data);
    await node.untilRunning('missing');
  });
  test('users, groups, capabilities and a read-only root follow the securityContext', async () => {
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
    await node.untilRunning('secure');
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
  test("hostNetwork: the pod is in the node's network and resolves other pods' names", async () => {
    await node.createPod(
      'host-net',
      pod([shell('hostname; ip -o -4 addr show; exec sleep 1000')], { hostNetwork: true }),
    );
    const { status } = await node.untilRunning('host-net');
    assert.equal(status.podIP, status.hostIP);
    await node.until('host-net', async () => /172\.30\.9\.11/.test(await node.logs('host-net')));
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
    const { status } = await node.untilRunning('names');
    const text = await node
      .until('names', async () => /options/.test(await node.logs('names')))
      .then(() => node.logs('names'));
    assert.match(String(text), /192\.0\.2\.7\tseven\tsiete/);
    assert.match(
      String(text),
      new RegExp(`${status.podIP}\tcalled\\.sub\\.default\\.svc\\.cluster\\.local\tcalled`),
    );
    assert.match(String(text), /search a\.test\nnameserver 192\.0\.2\.53\noptions ndots:2\n$/);
  });
  test('kubectl cp copies both ways', async () => {
    await node.createPod('copy', pod([shell('exec sleep 1000')]));
    await node.untilRunning('copy');
    const file = join(node.stateDir, 'ca.pem');
    const there = await node.kubectl('cp', file, 'copy:/home/there');
    assert.equal(there.code, 0, there.stderr);
    const back = join(node.stateDir, 'back.pem');
    assert.equal((await node.kubectl('cp', 'copy:/home/there', back)).code, 0);
    assert.equal(readFileSync(back, 'utf8'), readFileSync(file, 'utf8'));
    assert.equal(statSync('/home/there', { throwIfNoEntry: false }), undefined);
  });
});
