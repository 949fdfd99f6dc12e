/**
 * How long a cluster of `fairlead up` takes until the pods of one Deployment are ready, and how quickly its API server
 * answers meanwhile. Needs root. Run: node bench/pod-scale.ts [--pods 1000] [--nodes 3]. Results: bench/results/pods.md.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { type Client, createClient, pathOf } from '../src/kube/client.ts';
import { readKubeconfig } from '../src/kube/kubeconfig.ts';
import { httpTransport } from '../src/kube/transport.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { printTable } from './print-table.ts';

const LAUNCHER = join(import.meta.dirname, '..', 'fairlead');
const PATIENCE_MS = 600_000;
const BETWEEN_REQUESTS_MS = 100;
const NAMESPACE = 'default';
const NAME = 'many';
const exec = promisify(execFile);

const { values: options } = parseArgs({
  options: { pods: { type: 'string', default: '1000' }, nodes: { type: 'string', default: '3' } },
});
const PODS = Number(options.pods);
const NODES = Number(options.nodes);

const cluster = `bench-${process.pid}`;
const name = ['--name', cluster];
// Room for an uneven distribution, too.
const maxPods = Math.min(1000, Math.ceil((PODS / NODES) * 1.2));
await exec(LAUNCHER, [
  ...['up', '--detach', '--no-kubeconfig', ...name],
  ...['--nodes', String(NODES), '--max-pods', String(maxPods)],
]);
try {
  const { stdout } = await exec(LAUNCHER, ['kubeconfig', ...name]);
  const client = createClient(httpTransport(readKubeconfig(stdout.trim())), 'bench');
  await measure(client);
} finally {
  await exec(LAUNCHER, ['down', ...name]);
}

async function measure(client: Client): Promise<void> {
  const labels = { app: NAME };
  const started = performance.now();
  await client.create(RESOURCES.deployments, {
    metadata: { name: NAME, namespace: NAMESPACE },
    spec: {
      replicas: PODS,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          // An init that passes signals on: sleep alone, as process 1, would wait for the end of the grace period.
          containers: [{ name: 'main', image: 'host', command: ['catatonit', '--', 'sleep', '100000'] }],
        },
      },
    },
  });
  const latencies = { get: [] as number[], 'list of all pods': [] as number[], create: [] as number[] };
  const timed = async <T>(of: number[], request: Promise<T>): Promise<T> => {
    const begun = performance.now();
    const answer = await request;
    of.push(performance.now() - begun);
    return answer;
  };
  let ready = 0;
  for (let i = 0; ready < PODS; i++) {
    if (performance.now() - started > PATIENCE_MS) throw new Error(`only ${ready} of ${PODS} pods are ready`);
    const seen = await timed(latencies.get, client.get(RESOURCES.deployments, NAME, NAMESPACE));
    ready = seen.status?.readyReplicas ?? 0;
    await timed(latencies['list of all pods'], client.list(RESOURCES.pods));
    const configMap = { metadata: { name: `probe-${i}`, namespace: NAMESPACE } };
    await timed(latencies.create, client.create(RESOURCES.configMaps, configMap));
    await sleep(BETWEEN_REQUESTS_MS);
  }
  const allReady = performance.now() - started;
  const deleting = performance.now();
  await client.delete(RESOURCES.deployments, NAME, { namespace: NAMESPACE });
  const onePod = `${pathOf(RESOURCES.pods, NAMESPACE)}?limit=1`;
  while (((await client.request('GET', onePod)) as { items: unknown[] }).items.length > 0) {
    if (performance.now() - deleting > PATIENCE_MS) throw new Error('pods remain after their deletion');
    await sleep(BETWEEN_REQUESTS_MS);
  }
  const ms = (value: number | undefined) => `${(value ?? Number.NaN).toFixed(0)} ms`;
  console.log(
    `${PODS} pods on ${NODES} nodes: ready after ${(allReady / 1000).toFixed(1)} s, ${ms(allReady / PODS)} each; gone after ${((performance.now() - deleting) / 1000).toFixed(1)} s`,
  );
  const rows = Object.entries(latencies).map(([request, values]) => {
    values.sort((a, b) => a - b);
    const quantile = (share: number) => ms(values[Math.floor((values.length - 1) * share)]);
    return [request, String(values.length), quantile(0.5), quantile(0.99), quantile(1)];
  });
  printTable([['meanwhile', 'requests', 'median', '99 %', 'longest'], ...rows]);
}
