import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { findProcesses } from '../src/cluster/processes.ts';
import { isRunning } from '../src/kernel/process-identity.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { listTopology, removeTopology } from '../src/network/topology.ts';
import {
  freeLocalPort,
  HELLO,
  reserveCluster,
  runFairlead,
  spawnFairlead,
  startCluster,
} from './testing/cluster.ts';
import { machineChanges, machineState } from './testing/machine.ts';

/** Times into `up`: while it checks the machine, makes networks, starts processes and applies objects. */
const CRASHES_MS = [150, 300, 500, 800, 1200];

describe('down', () => {
  test('no state remains after a crash at any time of up, and up works again', async () => {
    const { name, stateRoot } = reserveCluster();
    const earlier = machineState(name, stateRoot);
    try {
      for (const milliseconds of CRASHES_MS) {
        const up = spawnFairlead(stateRoot, ['up', '--detach', '--nodes', '2', '--name', name, '-f', HELLO]);
        const ended = new Promise((resolve) => up.once('close', resolve));
        await new Promise((resolve) => setTimeout(resolve, milliseconds));
        up.kill('SIGKILL');
        await ended;
        const down = await runFairlead(stateRoot, ['down', '--name', name]);
        assert.equal(down.status, 0, down.error);
        assert.deepEqual(
          machineChanges(earlier, machineState(name, stateRoot)),
          [],
          `${milliseconds} ms into up`,
        );
        assert.deepEqual(existsSync(stateRoot) ? readdirSync(stateRoot) : [], []);
      }
      const again = await runFairlead(stateRoot, ['up', '--detach', '--name', name, '-f', HELLO]);
      assert.equal(again.status, 0, again.error);
    } finally {
      await runFairlead(stateRoot, ['down', '--name', name]);
      rmSync(stateRoot, { recursive: true, force: true });
    }
  });

  test('Ctrl-C of an up in the foreground removes the cluster completely', async () => {
    const { name, stateRoot } = reserveCluster();
    const earlier = machineState(name, stateRoot);
    const up = spawnFairlead(stateRoot, ['up', '--name', name, '-f', HELLO]);
    let text = '';
    up.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    const ended = new Promise<number | null>((resolve) => up.once('close', resolve));
    try {
      await eventually(
        () => text,
        (all) => all.includes('Ctrl-C removes the cluster'),
      );
      up.kill('SIGINT');
      assert.equal(await ended, 0);
      assert.match(text, new RegExp(`cluster ${name} removed`));
      assert.deepEqual(machineChanges(earlier, machineState(name, stateRoot)), []);
    } finally {
      await runFairlead(stateRoot, ['down', '--name', name]);
      rmSync(stateRoot, { recursive: true, force: true });
    }
  });

  test('an interrupted up leaves no state', async () => {
    const { name, stateRoot } = reserveCluster();
    const earlier = machineState(name, stateRoot);
    const up = spawnFairlead(stateRoot, ['up', '--nodes', '3', '--name', name, '-f', HELLO]);
    const ended = new Promise<number | null>((resolve) => up.once('close', resolve));
    await eventually(() => existsSync(join(stateRoot, name, 'cluster.json')), Boolean);
    up.kill('SIGTERM');
    assert.equal(await ended, 130);
    assert.deepEqual(machineChanges(earlier, machineState(name, stateRoot)), []);
    rmSync(stateRoot, { recursive: true, force: true });
  });
});

describe('a stopped cluster', () => {
  test('is started again by up with its objects, names, addresses and published ports, also after a snapshot or a reboot', async () => {
    const port = freeLocalPort();
    const cluster = await startCluster(['--nodes', '2', '-p', `${port}:80/svc/hello`, '-f', HELLO]);
    const facts = () =>
      cluster.kubectl(
        ...['get', 'services,pods,configmaps', '-A', '--sort-by=.metadata.name', '-o'],
        'jsonpath={range .items[*]}{.kind} {.metadata.uid} {.spec.clusterIP} {.status.podIP}{"\\n"}{end}',
      );
    const archive = join(cluster.stateRoot, 'snapshot.tar.gz');
    const done = async (...words: string[]) => {
      const { status, error } = await runFairlead(cluster.stateRoot, words);
      assert.equal(status, 0, error);
    };
    const ends: readonly (() => Promise<unknown>)[] = [
      () => cluster.fairlead('stop'),
      async () => {
        await done('snapshot', archive, '--name', cluster.name);
        await cluster.ask('delete', 'deployment', 'hello');
        const refused = await runFairlead(cluster.stateRoot, ['restore', archive]);
        assert.match(refused.error, /cluster \S+ exists/);
        await done('down', '--name', cluster.name);
        await done('restore', archive);
      },
      async () => {
        // Simulates a reboot: no process ends gracefully.
        const doomed = () => findProcesses(cluster.name, listTopology(cluster.name)).filter(isRunning);
        for (let left = doomed(); left.length > 0; left = doomed())
          for (const { pid } of left) spawnSync('kill', ['-9', String(pid)]);
        removeTopology(cluster.name);
      },
    ];
    try {
      const before = await facts();
      for (const end of ends) {
        await end();
        assert.deepEqual(listTopology(cluster.name), []);
        const up = await cluster.fairlead('up', '--detach');
        assert.equal(up.status, 0, up.error);
        assert.deepEqual(await facts(), before);
        const asked = await cluster.fairlead('exec', 'client', '--', 'fairlead', 'request', 'http://hello');
        assert.equal(asked.status, 0, asked.error);
        const published = await runFairlead(cluster.stateRoot, ['request', `http://127.0.0.1:${port}`]);
        assert.equal(published.status, 0, published.error);
      }
    } finally {
      await cluster.down();
    }
  });
});

describe('two clusters', () => {
  test('run side by side, each with its own addresses, pods and API', async () => {
    const reserved = reserveCluster();
    const first = await startCluster(['-f', HELLO], reserved);
    // With one state folder, as for one user.
    const second = await startCluster(['--nodes', '2', '-f', HELLO], {
      name: `${reserved.name}b`,
      stateRoot: reserved.stateRoot,
    });
    try {
      assert.notEqual(first.state().apiPort, second.state().apiPort);
      assert.notDeepEqual(first.state().wireCidrs, second.state().wireCidrs);
      const pods = [await first.pods('app=hello'), await second.pods('app=hello')];
      for (const [index, cluster] of [first, second].entries()) {
        const counts = await cluster.request('client', 'http://hello', '--count', '60');
        assert.deepEqual(counts.failures, {});
        assert.deepEqual(Object.keys(counts.answers).sort(), pods[index]?.map((pod) => pod.name).sort());
      }
      assert.equal((await first.fairlead('down')).status, 0);
      const counts = await second.request('client', 'http://hello', '--count', '60');
      assert.deepEqual(counts.failures, {});
    } finally {
      await first.fairlead('down');
      await second.down();
    }
  });

  test('that are started at the same moment get their own ports and networks', async () => {
    const { name, stateRoot } = reserveCluster();
    const started = await Promise.allSettled(
      ['a', 'b', 'c'].map((end) => startCluster(['-f', HELLO], { name: `${name}${end}`, stateRoot })),
    );
    const clusters = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    try {
      assert.deepEqual(
        started.map((one) => (one.status === 'rejected' ? String(one.reason) : '')),
        ['', '', ''],
      );
      const states = clusters.map((cluster) => cluster.state());
      assert.equal(new Set(states.map(({ apiPort }) => apiPort)).size, 3);
      assert.equal(new Set(states.flatMap(({ wireCidrs }) => wireCidrs)).size, 3);
      for (const cluster of clusters) {
        const counts = await cluster.request('client', 'http://hello', '--count', '30');
        assert.deepEqual(counts.failures, {});
      }
    } finally {
      for (const cluster of clusters) await cluster.fairlead('down');
      rmSync(stateRoot, { recursive: true, force: true });
    }
  });
});

describe('up rejects invalid input with an explanation, and creates nothing', () => {
  const rows: { name: string; args: string[]; says: RegExp }[] = [
    {
      name: 'an unknown mode',
      args: ['--mode', 'magic'],
      says: /--mode takes one of nftables, .*iptables.*, not "magic"/,
    },
    { name: 'no number of nodes', args: ['--nodes', 'many'], says: /--nodes/ },
    { name: 'too many nodes', args: ['--nodes', '5000'], says: /--nodes/ },
    { name: 'an unknown option', args: ['--colour'], says: /--colour/ },
    {
      name: 'an invalid name',
      args: ['--name', 'Not A Name'],
      says: /invalid cluster name "Not A Name"/,
    },
    {
      name: 'an invalid pod network',
      args: ['--pod-cidr', '10.244.0.0/99'],
      says: /--pod-cidr.*10\.244\.0\.0\/99/s,
    },
    { name: 'a pod network that is in use', args: ['--pod-cidr', '127.0.0.0/8'], says: /127\.0\.0\.0\/8/ },
    {
      name: 'networks that overlap',
      args: ['--pod-cidr', '10.50.0.0/16', '--service-cidr', '10.50.0.0/16'],
      says: /10\.50\.0\.0\/16.*overlap/s,
    },
    {
      name: 'an invalid published port',
      args: ['-p', '8080:80'],
      says: /"8080:80" cannot be read\n.*LOCALPORT:PORT\/svc\/NAME/,
    },
    { name: 'a manifest that is not there', args: ['-f', '/nonexistent.yaml'], says: /\/nonexistent\.yaml/ },
  ];
  for (const { name, args, says } of rows) {
    test(name, async () => {
      const { name: cluster, stateRoot } = reserveCluster();
      const earlier = machineState(cluster, stateRoot);
      try {
        const up = await runFairlead(stateRoot, [
          'up',
          '--detach',
          ...(args.includes('--name') ? [] : ['--name', cluster]),
          ...args,
        ]);
        assert.notEqual(up.status, 0);
        assert.match(up.error, says);
        assert.doesNotMatch(up.error, /\n +at /, 'no stack trace');
        assert.deepEqual(machineChanges(earlier, machineState(cluster, stateRoot)), []);
        assert.deepEqual(readdirSync(stateRoot), []);
      } finally {
        await runFairlead(stateRoot, ['down', '--name', cluster]);
        rmSync(stateRoot, { recursive: true, force: true });
      }
    });
  }

  test('a user without root privileges, and without a folder', (t) => {
    const bundle = join(import.meta.dirname, '..', 'dist', 'fairlead.mjs');
    const unprivileged = ['--reuid=65534', '--regid=65534', '--clear-groups', '--'];
    if (spawnSync('setpriv', [...unprivileged, 'test', '-r', bundle]).status !== 0) {
      return t.skip('the bundle lies in a folder that only root may read');
    }
    const { status, stderr } = spawnSync('setpriv', [...unprivileged, process.execPath, bundle, 'up'], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], HOME: '/nonexistent' },
    });
    assert.equal(status, 1, stderr);
    assert.match(stderr, /cannot create \/nonexistent\/.*\n.*permission denied.*\n.*set XDG_STATE_HOME/);
  });
});

test('up -f - reports each document of standard input that cannot be applied, and applies the others', async () => {
  const { name, stateRoot } = reserveCluster();
  const input = [
    'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first}\n',
    'apiVersion: v1\nkind: ConfgMap\nmetadata: {name: wrong}\n',
    'apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80, nodeport: 30080}]}\n',
    'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: last}\n',
  ].join('---\n');
  try {
    const up = await runFairlead(stateRoot, ['up', '--detach', '--name', name, '-f', '-'], { input });
    assert.equal(up.status, 1);
    assert.match(
      up.error,
      /standard input: document 2: ConfgMap wrong: unknown kind ConfgMap in v1\n.*use kind: ConfigMap/,
    );
    assert.match(
      up.error,
      /document 3: Service web: .*\.spec\.ports\[port=80,protocol="TCP"\]\.nodeport: field not declared in schema/,
    );
    assert.match(up.error, /2 of 4 objects of the manifests were not applied/);
    const env = { KUBECONFIG: join(stateRoot, name, 'kubeconfig') };
    const found = spawnSync('kubectl', ['get', 'configmaps', 'first', 'last', '-o', 'name'], {
      env: { ...process.env, ...env },
      encoding: 'utf8',
    });
    assert.equal(found.stdout, 'configmap/first\nconfigmap/last\n', found.stderr);
  } finally {
    await runFairlead(stateRoot, ['down', '--name', name]);
    rmSync(stateRoot, { recursive: true, force: true });
  }
});
