import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Cluster } from '../src/fixture/testing.ts';
import { startCluster } from '../src/fixture/testing.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, LAUNCHER, reserveCluster, runFairlead } from './testing/cluster.ts';
import { machineChanges, machineState } from './testing/machine.ts';
import { cannotRun, ordinaryUser } from './testing/ordinary-user.ts';
import { packedProject } from './testing/packed-package.ts';

/** The library "fairlead/testing": clusters of tests. */

const ROOT = resolve(import.meta.dirname, '..');
const SOURCE = join(ROOT, 'src', 'fixture', 'testing.ts');
const { stateRoot } = reserveCluster();
const folder = mkdtempSync(join(tmpdir(), 'flt-fixture-'));
/** For a start on a busy machine. */
const PATIENCE_MS = 240_000;
const earlierRoot = process.env['FAIRLEAD_STATE'];

before(() => {
  // Clusters of the library are in the state folder of the process.
  process.env['FAIRLEAD_STATE'] = stateRoot;
  // Makes the bundle.
  spawnSync(LAUNCHER, ['version']);
});
after(async () => {
  await runFairlead(stateRoot, ['down', '--all']);
  if (earlierRoot === undefined) delete process.env['FAIRLEAD_STATE'];
  else process.env['FAIRLEAD_STATE'] = earlierRoot;
  for (const path of [stateRoot, folder]) rmSync(path, { recursive: true, force: true });
});

const clusters = () => (existsSync(stateRoot) ? readdirSync(stateRoot) : []);

const WEB = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: fairlead
          command: [fairlead, echo, --port=8080]
          readinessProbe: {httpGet: {port: 8080}}
`;

/** A kind of the user's own, and an object of it. */
const WIDGETS = [
  {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'widgets.example.com' },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { plural: 'widgets', singular: 'widget', kind: 'Widget' },
      versions: [
        {
          ...{ name: 'v1', served: true, storage: true },
          schema: {
            openAPIV3Schema: {
              type: 'object',
              properties: { spec: { type: 'object', properties: { size: { type: 'integer' } } } },
            },
          },
        },
      ],
    },
  },
  { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'first' }, spec: { size: 3 } },
];

describe('two clusters of one test', () => {
  let printed = '';
  let first: Cluster;
  let second: Cluster;
  const print = (text: string) => {
    printed += text;
  };

  before(async () => {
    const options = { manifests: [HELLO], timeout: PATIENCE_MS, evidence: join(folder, 'evidence'), print };
    [first, second] = await Promise.all([
      startCluster(options),
      startCluster({ ...options, nodes: 2, mode: 'iptables' }),
    ]);
  });
  after(async () => {
    await Promise.all([first?.stop(), second?.stop()]);
    assert.deepEqual(clusters(), []);
  });

  test('they have names, API servers and kubeconfigs of their own', () => {
    assert.notEqual(first.name, second.name);
    assert.notEqual(first.server, second.server);
    assert.match(readFileSync(first.kubeconfig, 'utf8'), new RegExp(first.server));
  });

  test('exec: a pod, with both outputs, input and status', async () => {
    const command = ['sh', '-c', 'cat; echo problem >&2; exit 7'];
    assert.deepEqual(await second.exec('client', command, { input: 'text' }), {
      ...{ status: 7, stdout: 'text', stderr: 'problem\n' },
    });
  });

  test('exec: a node and the client outside', async () => {
    assert.match((await second.exec('node/node-2', ['ip', 'route'])).stdout, /172\.\d+\.\d+\.0\/24 dev eth0/);
    assert.match((await first.exec('outside', ['ip', '-o', 'address'])).stdout, /eth0|wire/);
  });

  for (const [place, message] of [
    ['missing', /pods "missing" not found/],
    ['node/node-7', /nodes "node-7" not found/],
  ] as const)
    test(`exec: ${place} is an error, not a status`, () =>
      assert.rejects(first.exec(place, ['true']), { message }));

  test('exec: a command that does not end is abandoned at its time-out', () =>
    assert.rejects(first.exec('client', ['sleep', '600'], { timeout: 300 }), { name: 'TimeoutError' }));

  test('request: through a Service, from a pod and from a node', async () => {
    for (const from of ['client', 'node/node-1']) {
      const { count, answers, failures } = await second.request(from, 'http://hello', { count: 10 });
      assert.deepEqual([count, failures], [10, {}]);
      assert.ok(Object.keys(answers).every((answer) => answer.startsWith('hello-')));
    }
  });

  test('request: no answer is a result', async () => {
    const { answers, failures } = await first.request('client', 'http://hello:81', { timeout: 500 });
    assert.deepEqual(answers, {});
    assert.equal(Object.keys(failures).length, 1);
  });

  test('waitFor: a Deployment becomes available, a pod of it is seen by a function', async () => {
    await first.apply(WEB);
    const web = await first.waitFor<{ status?: { availableReplicas?: number } }>(
      'deployment/web',
      'Available',
    );
    assert.ok((web.status?.availableReplicas ?? 0) > 0);
    await first.waitFor<{ status?: { readyReplicas?: number } }>(
      'deployments.apps/web',
      ({ status }) => status?.readyReplicas === 2,
    );
  });

  test('apply: objects, a kind of a definition among them', async () => {
    await first.apply(WIDGETS);
    const widget = await first.waitFor<{ spec?: { size?: number } }>('widget/first', 'exists');
    assert.equal(widget.spec?.size, 3);
  });

  test('apply: a refusal names the field, and the other objects are applied', async () => {
    const map = (name: string, more: object) => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name },
      ...more,
    });
    await assert.rejects(first.apply([map('bad', { date: {} }), map('good', {})]), {
      code: 'refused',
      message: /^apply: object 1: ConfigMap bad: .*\.date: field not declared/,
    });
    await first.waitFor('cm/good', 'exists', { timeout: PATIENCE_MS });
  });

  test('waitFor: the end of the wait tells the state', () => {
    const ended = new AbortController();
    const until = () => {
      ended.abort();
      return false;
    };
    return assert.rejects(first.waitFor('pod/client', until, { signal: ended.signal }), {
      code: 'not-ready',
      message: /^Pod default\/client does not fulfill .*Ready=True/,
    });
  });

  test('logs: of a pod', async () => {
    const { stdout } = await first.exec('client', ['fairlead', 'request', 'http://hello']);
    assert.match(await first.logs(stdout.trim()), /HTTP on port 8080/);
    await assert.rejects(first.logs('missing'), { reason: 'NotFound' });
  });

  test('a test that fails: logs and events are printed and kept, and its error stays', async () => {
    const failure = new Error('the test fails');
    await assert.rejects(
      first.logsOnFailure(() => {
        throw failure;
      }),
      (error) => error === failure,
    );
    assert.match(
      printed,
      /--- default\/hello-\S+ echo[\s\S]*HTTP on port 8080[\s\S]*--- events\n[\s\S]*Started Pod/,
    );
    const [, kept = ''] = /logs and events are kept in (.*)\n/.exec(printed) ?? [];
    assert.ok(kept.startsWith(join(folder, 'evidence')));
    assert.ok(readdirSync(kept).includes('default_client_shell.log'));
  });
});

test('a start that fails prints logs and events, and leaves nothing', async () => {
  const file = join(folder, 'broken.yaml');
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'bad' }, date: {} };
  writeFileSync(file, `${WEB}---\n${JSON.stringify(map)}\n`);
  let printed = '';
  await assert.rejects(
    startCluster({
      ...{ manifests: [file], timeout: PATIENCE_MS, evidence: join(folder, 'start') },
      print: (text) => {
        printed += text;
      },
    }),
    { code: 'not-ready', message: /^the cluster did not start: 1 objects of the manifests were not applied/ },
  );
  assert.match(printed, /--- default\/web-\S+ web \([\s\S]*--- events\n/);
  assert.ok(readdirSync(join(folder, 'start')).includes('pods.json'));
  assert.deepEqual(clusters(), []);
});

/** A program that starts a cluster, prints "started", and then does not end. */
const OWNER = `
import { startCluster } from ${JSON.stringify(SOURCE)};
const cluster = await startCluster({ name: process.argv[2], timeout: ${PATIENCE_MS} });
console.log('started');
setInterval(() => cluster, 1000);
`;

describe('the process that started a cluster is killed', () => {
  const script = join(folder, 'owner.mjs');
  for (const moment of ['when it is ready', 'while it starts'] as const) {
    test(`${moment}: no process, mount or namespace is left`, async () => {
      writeFileSync(script, OWNER);
      const { name } = reserveCluster();
      const earlier = machineState(name, stateRoot);
      const owner = spawn(process.execPath, [script, name], { stdio: ['ignore', 'pipe', 'inherit'] });
      let out = '';
      owner.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
      const begun = () =>
        moment === 'while it starts' ? clusters().includes(name) : out.includes('started');
      await eventually(begun);
      owner.kill('SIGKILL');
      await eventually(
        () => [...clusters(), ...machineChanges(earlier, machineState(name, stateRoot))],
        (left) => left.length === 0,
      );
    });
  }

  test('a program that forgets its cluster ends, and the cluster with it', async () => {
    writeFileSync(script, OWNER.replace(/setInterval.*/, ''));
    const { name } = reserveCluster();
    const owner = spawnSync(process.execPath, [script, name], { encoding: 'utf8', timeout: 120_000 });
    assert.equal(owner.status, 0, owner.stderr);
    await eventually(clusters, (left) => left.length === 0);
  });
});

const SUITE = `
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCluster } from 'fairlead/testing';
test('hello', async () => {
  await using cluster = await startCluster({ manifests: ['node_modules/fairlead/examples/hello.yaml'] });
  await cluster.logsOnFailure(async () => {
    const { answers } = await cluster.request('client', 'http://hello');
    assert.match(Object.keys(answers)[0], /^hello-/);
  });
});
`;
const TYPED = `
import { type Cluster, startCluster } from 'fairlead/testing';
await using cluster: Cluster = await startCluster({ nodes: 2, mode: 'ebpf' });
const status: number = (await cluster.exec('client', ['true'])).status;
const pod = await cluster.waitFor<{ status: { phase: string } }>('pod/client', (one) => one.status.phase === 'Running');
console.log(status, pod.status.phase);
// @ts-expect-error: not a mode
await startCluster({ mode: 'none' });
`;

test('the npm package in an empty project: a suite of node:test, and types', async () => {
  const project = mkdtempSync(join(tmpdir(), 'flt-project-'));
  try {
    const { run } = await packedProject(project, { FAIRLEAD_STATE: stateRoot });
    writeFileSync(join(project, 'hello.test.mjs'), SUITE);
    assert.match(
      await run(process.execPath, '--test', '--test-reporter=tap', 'hello.test.mjs'),
      /^# pass 1$/m,
    );
    assert.deepEqual(clusters(), []);
    writeFileSync(join(project, 'typed.mts'), TYPED);
    const settings = [
      '--noEmit',
      '--strict',
      '--module',
      'nodenext',
      '--target',
      'esnext',
      '--types',
      'node',
    ];
    const roots = ['--typeRoots', join(ROOT, 'node_modules', '@types')];
    const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
    await run(process.execPath, compiler, ...settings, ...roots, 'typed.mts');
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
});

const UID = 41_010;
const obstacle = cannotRun(UID);

test('an ordinary user', { skip: obstacle ?? false }, async () => {
  const user = ordinaryUser(UID);
  try {
    const script = join(user.home, 'user.mjs');
    writeFileSync(
      script,
      `import { startCluster } from ${JSON.stringify(join(ROOT, 'dist', 'testing.mjs'))};
       const evidence = ${JSON.stringify(join(user.home, 'evidence'))};
       await using cluster = await startCluster({ manifests: [${JSON.stringify(HELLO)}], timeout: ${PATIENCE_MS}, evidence });
       console.log(JSON.stringify(await cluster.request('client', 'http://hello')));
       console.log((await cluster.exec('outside', ['id', '-u'])).stdout.trim());
       await cluster.logsOnFailure(() => { throw new Error('fails'); }).catch(() => {});`,
    );
    const { status, out, error } = await user.run(process.execPath, [script]);
    assert.equal(status, 0, error);
    assert.match(out, /"hello-[^"]*":1[\s\S]*\n0\n$/);
    assert.match(error, /--- default\/client shell[\s\S]*logs and events are kept in/);
    await eventually(
      () => user.processes(),
      (left) => left.length === 0,
    );
  } finally {
    await user.fairlead('down', '--all');
    user.remove();
  }
});
