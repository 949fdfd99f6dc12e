import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Dirent, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { readRuntimeRecord, runningRuntime } from '../src/agent/pod-runtime/runtime-record.ts';
import { findProcesses } from '../src/cluster/processes.ts';
import { podRuntimeName } from '../src/cluster/supervision.ts';
import { readOptionalFile } from '../src/kernel/optional-file.ts';
import { isRunning, type ProcessIdentity } from '../src/kernel/process-identity.ts';
import type { Node, Pod } from '../src/kube/types.ts';
import { hasCode } from '../src/lib/errors.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, LAUNCHER, type Load, startCluster } from './testing/cluster.ts';
import { type DeafRequest, openDeafClients } from './testing/deaf-clients.ts';
import { ASK_NAME, type Asked } from './testing/name-asker.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/**
 * The process that runs a node's pods is killed, gets stuck, or needs too much memory, while pods and the node send requests
 * and queries: none is lost, the pods stay as they are, and the agent starts the process again.
 */

const ASKER = `
apiVersion: v1
kind: Pod
metadata: {name: asker, labels: {part: asker}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [{name: shell, image: fairlead, command: [sleep, infinity]}]
`;
/** How long a run may be silent, in the agent that the second part starts. */
const ANSWER_MS = 3000;
/** Less than any run needs. */
const SMALL_MIB = 16;

let cluster: Cluster;
let service: string;
before(async () => {
  cluster = await startCluster(['--nodes', '2', '-f', HELLO]);
  await cluster.apply(ASKER);
  await cluster.ask('wait', 'pod/asker', '--for=condition=Ready', '--timeout=120s');
  service = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
});
after(() => cluster?.down());

const stateDir = () => join(cluster.stateRoot, cluster.name, 'nodes', 'node-1', 'state');
const runtime = (): ProcessIdentity => {
  const found = runningRuntime(stateDir());
  assert.ok(found, 'no pod runtime is running on node-1');
  return found;
};
const signal = (name: NodeJS.Signals): ProcessIdentity => {
  const identity = runtime();
  process.kill(identity.pid, name);
  return identity;
};

/** Resolves when another run than this one works: a new pod is started. */
async function worksAgain(before: ProcessIdentity): Promise<void> {
  await eventually(
    () => runningRuntime(stateDir()),
    (now) => now !== null && now.pid !== before.pid,
    60_000,
  );
  await startsPod();
}

let made = 0;
async function startsPod(): Promise<void> {
  const name = `late-${++made}`;
  await cluster.apply(ASKER.replace('name: asker', `name: ${name}`));
  await cluster.ask('wait', `pod/${name}`, '--for=condition=Ready', '--timeout=120s');
  await cluster.ask('delete', 'pod', name, '--wait=true');
}

/** Returns what a restart of a pod would change: uids, addresses, container ids, start times and restart counts. */
async function pods(): Promise<readonly string[]> {
  const { items } = JSON.parse(await cluster.ask('get', 'pods', '-o', 'json')) as { items: Pod[] };
  return items
    .filter(({ metadata }) => !metadata?.name?.startsWith('late-'))
    .map(({ metadata, status }) =>
      JSON.stringify([
        ...[metadata?.name, metadata?.uid, status?.podIP, status?.startTime, status?.phase],
        ...(status?.containerStatuses ?? []).map((one) => [one.containerID, one.restartCount, one.state]),
      ]),
    )
    .sort();
}

/** Returns the process of the control plane. */
const apiPid = (): number =>
  findProcesses(cluster.name, []).find(({ pid }) => {
    const words = (readOptionalFile(`/proc/${pid}/cmdline`) ?? '').split('\0');
    return words.includes('control-plane');
  })?.pid ?? 0;

const hostile = async (): Promise<readonly Pod[]> =>
  (JSON.parse(await cluster.ask('get', 'pods', '-l', 'part=hostile', '-o', 'json')) as { items: Pod[] })
    .items;

const restartsOf = (found: readonly Pod[]): number =>
  found
    .flatMap(({ status }) => status?.containerStatuses ?? [])
    .reduce((sum, { restartCount }) => sum + (restartCount ?? 0), 0);

/**
 * Returns the sizes of the logs of the first node's containers by path. Some may be removed meanwhile, and a full one is
 * begun again from 0.
 */
function logSizes(folder = join(stateDir(), 'log')): [path: string, size: number][] {
  let entries: Dirent[];
  try {
    entries = readdirSync(folder, { withFileTypes: true });
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return logSizes(path);
    return entry.name.endsWith('.log') ? [[path, statSync(path, { throwIfNoEntry: false })?.size ?? 0]] : [];
  });
}

/** Returns the memory of a process in bytes; 0: it has ended. */
function residentBytes(pid: number): number {
  const text = readOptionalFile(`/proc/${pid}/status`) ?? '';
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

interface Traffic {
  /** Asserts that nothing was lost until now, and that the pods are as they were. */
  stop(onAsked?: (asked: Asked) => void): Promise<void>;
}

/** Begins requests to the Service from the node, from outside and from a pod, and queries of the pod to its node's server. */
async function traffic(): Promise<Traffic> {
  const known = await pods();
  const node = cluster.state().nodes.find(({ name }) => name === 'node-1');
  const loads: [string, Load][] = [
    ['node', cluster.load('node/node-1', `http://${service}`)],
    ['pod', cluster.load('asker', `http://${service}`)],
    ['outside', cluster.load('outside', `http://${node?.addresses[0]}:30080`)],
  ];
  const words = ['exec', '--name', cluster.name, 'asker', '--', '/opt/fairlead/node', '-e', ASK_NAME];
  const asker = spawn(LAUNCHER, [...words, 'hello.default.svc.cluster.local'], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, FAIRLEAD_STATE: cluster.stateRoot },
  });
  let out = '';
  asker.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  const closed = once(asker, 'close');
  await eventually(
    () => out,
    (text) => text.startsWith('begun'),
    30_000,
  );
  return {
    async stop(onAsked = () => {}) {
      for (const [name, load] of loads) {
        const { count, failures } = await load.stop();
        assert.deepEqual(failures, {}, `from ${name}`);
        assert.ok(count >= 100, `${count} requests from ${name}`);
      }
      asker.stdin.end();
      await closed;
      const asked = JSON.parse(out.split('\n')[1] ?? '') as Asked;
      onAsked(asked);
      assert.ok(asked.sent >= 200, `${asked.sent} queries`);
      const answered = { lost: 0, rcodes: { 0: asked.sent }, failures: {} };
      assert.deepEqual(asked, { ...asked, ...answered });
      assert.deepEqual(await pods(), known);
    },
  };
}

/** Clients, and the memory that they may have a process keep: a MiB or two each, most of it in buffers of TLS and HTTP. */
const DEAF_CLIENTS = 30;
const MAX_GROWTH_MIB = 150;
/** Pods of containers that end at once, each a little later than the one before. The full product has 60 containers. */
const CRASHING_PODS = TAKES_FULL_PRODUCT ? 10 : 4;
const CRASHING_CONTAINERS = 6;
/** Containers that a node has started again when the test ends: each after 0 and 10 seconds, then after 20. */
const RESTARTS = CRASHING_PODS * CRASHING_CONTAINERS * (TAKES_FULL_PRODUCT ? 3 : 2);
/** One log is at most 10 MiB; conmon completes what it has read. */
const MAX_LOG_BYTES = 11 << 20;
/** A node's agent and its pod runtime need some 100 MiB each. */
const MAX_PROCESS_BYTES = 400 << 20;

/** Pods whose containers crash, one that prints lines as fast as it can, and one that prints a line without end. */
function hostilePods(): string {
  const command = (words: string) => `{image: fairlead, command: [sh, -c, '${words}']}`;
  const pod = (name: string, containers: readonly string[]) => `
apiVersion: v1
kind: Pod
metadata: {name: late-${name}, labels: {part: hostile}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [${containers.map((one, i) => one.replace('{', `{name: c${i}, `)).join(', ')}]`;
  const crashing = Array.from({ length: CRASHING_CONTAINERS }, () => command('exit 3'));
  return [
    ...Array.from({ length: CRASHING_PODS }, (_, i) => pod(`crash-${i}`, crashing)),
    pod('flood', [command('exec yes')]),
    pod('line', [command('exec tr "\\\\0" x </dev/zero')]),
  ].join('\n---');
}

const shown = async () => {
  const { out, error } = await cluster.fairlead('status', '-o', 'json');
  assert.notEqual(out, '', error);
  const { processes } = JSON.parse(out) as {
    processes: { name: string; restarts: number; lastExit: { reason: string } | null }[];
  };
  return processes.find(({ name }) => name === podRuntimeName('node-1'));
};

describe('the pod runtime of a node of a local cluster', () => {
  test('kill -9, three times: nothing is lost, new pods start, and status shows how often and why', async () => {
    const load = await traffic();
    const earlier = (await shown())?.restarts ?? 0;
    for (let i = 1; i <= 3; i++) {
      await worksAgain(signal('SIGKILL'));
      const now = await shown();
      assert.equal(now?.restarts, earlier + i);
      assert.equal(now?.lastExit?.reason, 'killed by SIGKILL');
    }
    await load.stop();
    const { status, out } = await cluster.fairlead('status');
    assert.equal(status, 0, out);
  });

  test(`${CRASHING_PODS * CRASHING_CONTAINERS} containers that crash and two that print without end: nothing is lost, and logs, events and memory are bounded`, async (t) => {
    const earlier = (await shown())?.restarts ?? 0;
    const load = await traffic();
    const most = { log: 0, agent: 0, runtime: 0 };
    const filled = new Set<string>();
    try {
      await cluster.apply(hostilePods());
      await eventually(
        async () => {
          const agent = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
          for (const [path, size] of logSizes()) {
            most.log = Math.max(most.log, size);
            if (size > 1 << 20) filled.add(path);
          }
          most.agent = Math.max(most.agent, residentBytes(agent?.pid ?? 0));
          most.runtime = Math.max(most.runtime, residentBytes(runtime().pid));
          return restartsOf(await hostile());
        },
        (count) => count >= RESTARTS,
        300_000,
      );
      const events = await cluster.ask('get', 'events', '-o', 'jsonpath={.items[*].involvedObject.name}');
      const count = events.split(' ').filter((name) => name.startsWith('late-')).length;
      await load.stop((asked) => {
        t.diagnostic(
          `${asked.sent} queries, the longest ${asked.slowest} ms; ${JSON.stringify(most)}, ${count} events`,
        );
      });
      // Both containers that print have filled a log.
      assert.ok(filled.size >= 2, [...filled].join());
      assert.ok(most.log <= MAX_LOG_BYTES, `a log of ${most.log} bytes`);
      assert.ok(most.agent <= MAX_PROCESS_BYTES, `an agent of ${most.agent} bytes`);
      assert.ok(most.runtime <= MAX_PROCESS_BYTES, `a pod runtime of ${most.runtime} bytes`);
      assert.equal((await shown())?.restarts, earlier);
      // Repeated events are counted, not kept: each container has one for each reason.
      assert.ok(count <= (CRASHING_PODS * CRASHING_CONTAINERS + 2) * 8, `${count} events`);
    } finally {
      await cluster.ask('delete', 'pods', '-l', 'part=hostile', '--wait=true', '--timeout=120s');
    }
    await eventually(
      () => logSizes(),
      (sizes) => sizes.every(([, size]) => size < 1 << 20),
    );
  });

  test('30 clients of exec, attach and logs that read nothing: memory is bounded, and others are served', async (t) => {
    const pids = () => [
      runtime().pid,
      ...cluster.state().nodes.flatMap(({ agent }) => agent?.pid ?? []),
      apiPid(),
    ];
    const memory = () => pids().map(residentBytes);
    await cluster.apply(ASKER.replace('name: asker', 'name: late-loud').replace('sleep, infinity', '"yes"'));
    await cluster.ask('wait', 'pod/late-loud', '--for=condition=Ready', '--timeout=120s');
    const before = memory();
    const yes = 'exec?command=yes&stdout=true';
    const kinds: DeafRequest[] = [
      { path: `asker/${yes}`, protocol: 'websocket' },
      { path: `asker/${yes}`, protocol: 'spdy' },
      { path: 'late-loud/attach?stdout=true', protocol: 'websocket' },
      { path: 'late-loud/attach?stdout=true', protocol: 'spdy' },
      { path: 'late-loud/log?follow=true', protocol: 'http' },
      { path: 'late-loud/log', protocol: 'http' },
    ];
    const clients = await openDeafClients(
      cluster,
      kinds.flatMap((kind) => Array.from({ length: DEAF_CLIENTS / kinds.length }, () => kind)),
    );
    try {
      const expected = kinds.map(({ protocol }) => (protocol === 'http' ? '200' : '101'));
      assert.deepEqual(
        [...new Set(clients.answers.map((line) => line.split(' ')[1]))].sort(),
        [...new Set(expected)].sort(),
      );
      const most = before.slice();
      for (let round = 0; round < 10; round++) {
        assert.equal(await cluster.ask('exec', 'asker', '--', 'echo', String(round)), `${round}\n`);
        // A log that has just been rotated is empty for a moment.
        await eventually(
          () => cluster.ask('logs', 'late-loud', '--limit-bytes=2'),
          (out) => out === 'y\n',
        );
        for (const [i, bytes] of memory().entries()) most[i] = Math.max(most[i] ?? 0, bytes);
      }
      const grown = most.map((bytes, i) => Math.round((bytes - (before[i] ?? 0)) / (1 << 20)));
      t.diagnostic(`grown by ${grown.join(', ')} MiB: pod runtime, agents, API server`);
      assert.ok(Math.max(...grown) < MAX_GROWTH_MIB, grown.join());
    } finally {
      clients.close();
      await cluster.ask('delete', 'pod', 'late-loud', '--wait=true');
    }
    // The commands of clients that have gone end.
    await eventually(
      async () => (await cluster.ask('exec', 'asker', '--', 'sh', '-c', 'pidof yes || true')) === '',
    );
  });

  test('kill -9 of the agent: the pods stay, its runtime ends, and the next agent starts another', async () => {
    const known = await pods();
    const before = runtime();
    const agent = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
    assert.ok(agent);
    process.kill(agent.pid, 'SIGKILL');
    await worksAgain(before);
    assert.ok(!isRunning(before));
    assert.deepEqual(await pods(), known);
  });

  test('kill -9 of an agent whose runtime is stuck: the next agent kills it', async () => {
    const known = await pods();
    const before = signal('SIGSTOP');
    const agent = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
    assert.ok(agent);
    process.kill(agent.pid, 'SIGKILL');
    await worksAgain(before);
    assert.ok(!isRunning(before));
    assert.deepEqual(await pods(), known);
  });
});

describe('with other bounds', () => {
  let agent: ChildProcess | null = null;

  /** Starts the node's agent with these bounds of its pod runtime, in place of the cluster's. */
  async function startAgent(bounds: { memoryMiB?: number; answerMs?: number }): Promise<void> {
    await endAgent();
    const folder = join(cluster.stateRoot, cluster.name, 'nodes', 'node-1');
    const own = JSON.parse(readFileSync(join(folder, 'agent.json'), 'utf8')) as { pods: object };
    const config = join(folder, 'agent-bounded.json');
    writeFileSync(config, JSON.stringify({ ...own, pods: { ...own.pods, runtime: bounds } }));
    const netns = `--net=/run/netns/fl-${cluster.name}-node-1`;
    agent = spawn('nsenter', [netns, LAUNCHER, 'agent', '--config', config], {
      stdio: 'inherit',
      env: { ...process.env, FAIRLEAD_PROCESS_OF: cluster.name },
    });
  }
  async function endAgent(): Promise<void> {
    const child = agent;
    agent = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  const ready = async () => {
    const node = JSON.parse(await cluster.ask('get', 'node', 'node-1', '-o', 'json')) as Node;
    return node.status?.conditions?.find(({ type }) => type === 'Ready');
  };

  before(async () => {
    await cluster.stopSupervisor();
    const ours = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
    assert.ok(ours);
    process.kill(ours.pid, 'SIGTERM');
    await eventually(() => !isRunning(ours) && runningRuntime(stateDir()) === null);
  });
  after(endAgent);

  test('stuck (SIGSTOP): nothing is lost, and it is killed and started again', async () => {
    await startAgent({ answerMs: ANSWER_MS });
    await eventually(() => runningRuntime(stateDir()) !== null, Boolean, 120_000);
    await startsPod();
    const load = await traffic();
    const before = signal('SIGSTOP');
    await worksAgain(before);
    assert.match(
      readRuntimeRecord(stateDir()).lastExit?.reason ?? '',
      /^killed: it did not answer for \d+ s$/,
    );
    await load.stop();
    assert.equal((await ready())?.status, 'True');
  });

  test('out of memory at each start: nothing is lost, the Node says why it is not ready, and it recovers', async () => {
    await startAgent({ answerMs: ANSWER_MS, memoryMiB: SMALL_MIB });
    const { restarts } = readRuntimeRecord(stateDir());
    await eventually(
      () => readRuntimeRecord(stateDir()),
      (now) => now.restarts >= restarts + 2,
      60_000,
    );
    const load = await traffic();
    await eventually(
      ready,
      (condition) =>
        condition?.status === 'False' &&
        /pod runtime .*(memory|heap|more than 16 MiB)/.test(condition.message ?? ''),
      120_000,
    );
    await load.stop();

    await startAgent({});
    await eventually(ready, (condition) => condition?.status === 'True', 60_000);
    await startsPod();
  });

  test('SIGTERM of the agent ends its runtime, and the pods run on', async () => {
    const known = await pods();
    const last = runtime();
    await endAgent();
    assert.ok(!isRunning(last));
    assert.deepEqual(await pods(), known);
  });
});

test('down leaves no process', async () => {
  const { name } = cluster;
  await cluster.down();
  assert.deepEqual(findProcesses(name, []), []);
  assert.ok(!existsSync(stateDir()));
});
