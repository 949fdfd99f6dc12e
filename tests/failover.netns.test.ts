import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import {
  type Cluster,
  type Counts,
  type RunningPod,
  spawnFairlead,
  startCluster,
} from './testing/cluster.ts';

/** IPVS is not in every kernel. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

/**
 * Connects until a connection to the server of that name is open, reports it, then waits without sending;
 * reports the end.
 */
const WAIT_FOR_END = `
const { connect } = require('node:net');
const [name, host, port] = process.argv.slice(1);
const attempt = () => {
  const socket = connect(port, host, () => socket.write('GET /hostname HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'));
  socket.once('data', (data) => {
    if (!data.toString().includes(name)) { socket.destroy(); return attempt(); }
    console.log('connected');
    socket.on('error', (error) => { console.log(error.code); process.exit(0); });
    socket.on('end', () => { console.log('end'); process.exit(0); });
  });
  socket.once('error', () => {});
};
attempt();
`;

const PRINT_METRICS = `fetch('http://127.0.0.1:10249/metrics').then((r) => r.text()).then(console.log)`;

/** Servers that can be disconnected from the network, or stopped, without their pod's status changing. */
const FRAGILE = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: fragile}
spec:
  replicas: 4
  selector: {matchLabels: {app: fragile}}
  template:
    metadata: {labels: {app: fragile}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: echo
          image: fairlead
          command: [sh, -c, 'fairlead echo --port=8080 & echo $! > /tmp/server; sleep infinity']
          securityContext: {capabilities: {add: [NET_ADMIN]}}
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 60}
---
apiVersion: v1
kind: Service
metadata: {name: fragile}
spec:
  type: NodePort
  selector: {app: fragile}
  ports: [{port: 80, targetPort: 8080, nodePort: 30081}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: shell, image: fairlead, command: [sleep, infinity]}]
`;

describe('connections to a dead endpoint reach another one', () => {
  let cluster: Cluster;
  before(async () => {
    cluster = await startCluster(['--nodes', '2', '--mode', MODES[0] ?? '']);
    await cluster.apply(FRAGILE);
    await ready();
  });
  const waiters = new Set<ChildProcess>();
  after(async () => {
    for (const child of waiters) child.kill();
    await cluster?.down();
  });

  const ready = async (): Promise<RunningPod[]> => {
    await cluster.ask('rollout', 'status', 'deployment/fragile', '--timeout=120s');
    await cluster.ask('wait', '--for=condition=Ready', 'pod/client', '--timeout=120s');
    return await cluster.pods('app=fragile');
  };
  const ask = (place: string, url: string, count: number) =>
    cluster.request(place, url, '--count', String(count), '--concurrency', '8', '--timeout', '20000');
  const inPod = async (pod: RunningPod, ...command: string[]) => {
    const { status, error } = await cluster.fairlead('exec', pod.name, '--', ...command);
    assert.equal(status, 0, error);
  };
  /** Sends requests until a node has ejected the endpoint. Returns all requests. */
  async function askUntilEjected(pod: RunningPod, place: string, url: string): Promise<Counts[]> {
    const all: Counts[] = [];
    await eventually(
      async () => {
        all.push(await ask(place, url, 100));
        const events = await cluster.ask('get', 'events', '--field-selector', 'reason=EndpointEjected');
        return events;
      },
      (events) => events.includes(`${pod.ips[0]}:8080/TCP`),
    );
    return all;
  }
  /** Starts a client that is connected to this pod and only waits. */
  async function waitForEnd(pod: RunningPod, address: string): Promise<{ end: Promise<string> }> {
    const child = spawnFairlead(cluster.stateRoot, [
      ...['exec', '--name', cluster.name, 'outside', '--'],
      ...[process.execPath, '-e', WAIT_FOR_END, pod.name, address, '30081'],
    ]);
    waiters.add(child);
    const lines = createInterface(child.stdout ?? process.stdin)[Symbol.asyncIterator]();
    const next = async () => String((await lines.next()).value);
    assert.equal(await next(), 'connected');
    return { end: next() };
  }
  const failuresOf = (all: readonly Counts[]) => Object.assign({}, ...all.map(({ failures }) => failures));

  /** Returns the total number of endpoints that nodes have ejected. */
  async function ejections(): Promise<number> {
    let count = 0;
    for (const { name } of cluster.state().nodes) {
      const { status, out, error } = await cluster.fairlead(
        ...['exec', `node/${name}`, '--', process.execPath, '-e', PRINT_METRICS],
      );
      assert.equal(status, 0, error);
      for (const [, value] of out.matchAll(/^fairlead_endpoint_ejections_total\{.*\} (\d+)$/gm)) {
        count += Number(value);
      }
    }
    return count;
  }

  for (const mode of MODES) {
    test(`${mode}: one endpoint becomes unreachable, another one stops`, async () => {
      const { status, error } = await cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
      const countBefore = await ejections();
      const pods = await ready();
      const [gone, ended] = pods as [RunningPod, RunningPod];
      const node = cluster.state().nodes[0]?.addresses[0];
      const waiting = await waitForEnd(gone, node ?? '');

      await inPod(gone, 'ip', 'link', 'set', 'eth0', 'down');
      const during = await askUntilEjected(gone, 'client', 'http://fragile');
      assert.deepEqual(failuresOf(during), {});
      const without = await ask('client', 'http://fragile', 60);
      assert.deepEqual(without.failures, {});
      assert.ok(!(gone.name in without.answers), JSON.stringify(without.answers));

      await inPod(ended, 'sh', '-c', 'kill $(cat /tmp/server)');
      const place = 'outside';
      const url = `http://${node}:30081`;
      await askUntilEjected(ended, place, url);
      assert.deepEqual((await ask(place, url, 60)).failures, {});
      assert.ok((await ejections()) >= countBefore + 2, 'each is counted');
      await cluster.ask('delete', 'pod', gone.name, ended.name, '--wait=false');
      await eventually(
        () => cluster.pods('app=fragile'),
        (now) => now.length === 4 && now.every(({ name }) => name !== gone.name && name !== ended.name),
      );
      assert.equal(await waiting.end, 'ECONNRESET');
    });
  }
});
