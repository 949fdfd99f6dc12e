/**
 * A node's agent in a large cluster: how long from its start until the kernel has every Service, what it keeps in
 * memory, and how long from a change of an EndpointSlice to the kernel's map. The agent is a process of its own, as
 * on any node, in a network namespace made for it; the API server beside it is Fairlead's own, reached over HTTPS.
 *
 * node bench/agent-scale.ts [--services 10000] [--changes 200] [--parts proxy,proxy+dns] [--mode nftables]
 */
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { watchNftables } from '../src/kernel/nftables/events.ts';
import { type Client, createClient } from '../src/kube/client.ts';
import { RESOURCES, type Service } from '../src/kube/types.ts';
import { type ApiFixture, startApi } from './api-fixture.ts';
import { type MeasuredProcess, quantileOf, startAgent } from './measured-process.ts';
import { runInOwnNamespace } from './own-namespace.ts';
import { printTable } from './print-table.ts';
import { processorTime, residentMemory } from './process-usage.ts';
import { type ScaleService, serviceObject, sliceObjects } from './scale-cluster.ts';

const ENDPOINTS = 10;
const NODE = 'node-0';
const NODE_ADDRESS = '192.0.2.10';
const SERVICE_CIDR = '10.96.0.0/12';

const { values: options } = parseArgs({
  options: {
    services: { type: 'string', default: '10000' },
    changes: { type: 'string', default: '200' },
    parts: { type: 'string', default: 'proxy,proxy+dns' },
    mode: { type: 'string', default: 'nftables' },
    inside: { type: 'boolean', default: false },
  },
});
const SERVICES = Number(options.services);
const CHANGES = Math.min(5000, Number(options.changes));

const podsOf = (number: number) => Array.from({ length: ENDPOINTS }, (_, e) => number * ENDPOINTS + e);
const serviceOf = (number: number, pods = podsOf(number)): ScaleService => ({
  number,
  pods,
  hasHints: false,
});

/** Returns sum and count of a histogram of the agent, of all IP families. */
async function histogram(metric: string): Promise<{ sum: number; count: number }> {
  const text = await (await fetch('http://127.0.0.1:10249/metrics')).text();
  const value = (suffix: string) =>
    [...text.matchAll(new RegExp(`^${metric}_${suffix}(?:\\{.*\\})? (\\S+)`, 'gm'))].reduce(
      (sum, [, one]) => sum + Number(one),
      0,
    );
  return { sum: value('sum'), count: value('count') };
}

async function measure(api: ApiFixture, part: string, owners: readonly Service[]): Promise<string[]> {
  const client = createClient(api.transport, 'bench');
  const cluster = { api, node: NODE, podCidr: '10.128.0.0/9', serviceCidr: SERVICE_CIDR };
  const agent = await startAgent(cluster, part, options.mode);
  try {
    return await observe(agent, part, client, owners);
  } finally {
    await agent.stop();
  }
}

async function observe(
  agent: MeasuredProcess,
  part: string,
  client: Client,
  owners: readonly Service[],
): Promise<string[]> {
  const atStart = residentMemory(agent.pid);
  const spent = processorTime(agent.pid);
  await sleep(5000);
  const settled = residentMemory(agent.pid);
  let onCommit = () => {};
  const watch = watchNftables(
    ({ tables }) => {
      if (tables.has('2 fairlead')) onCommit();
    },
    () => console.error('events were lost'),
  );
  const before = await histogram('kubeproxy_sync_partial_proxy_rules_duration_seconds');
  const latencies: number[] = [];
  for (let k = 0; k < CHANGES; k++) {
    const i = (k * 7919) % SERVICES;
    const owner = owners[i];
    if (!owner) throw new RangeError();
    // Adds an endpoint, then removes it.
    for (const wanted of [[...podsOf(i), SERVICES * ENDPOINTS + k], podsOf(i)]) {
      const [changed] = sliceObjects(serviceOf(i, wanted), owner);
      if (!changed) throw new RangeError();
      const committed = new Promise<number>((resolve) => {
        onCommit = () => resolve(performance.now());
      });
      await client.update(RESOURCES.endpointSlices, changed);
      // From here on the API server has the change, and notifies its watchers.
      const told = performance.now();
      latencies.push((await committed) - told);
      await sleep(25);
    }
  }
  watch.close();
  const after = await histogram('kubeproxy_sync_partial_proxy_rules_duration_seconds');
  const worked = residentMemory(agent.pid);
  const mb = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
  const programming = ((after.sum - before.sum) / (after.count - before.count)) * 1000;
  return [
    `${part}, ${options.mode}`,
    (agent.readyMs / 1000).toFixed(2),
    spent.toFixed(2),
    mb(atStart.now),
    mb(settled.now),
    mb(worked.now),
    mb(worked.peak),
    quantileOf(latencies, 0.5).toFixed(2),
    quantileOf(latencies, 0.99).toFixed(2),
    programming.toFixed(2),
  ];
}

const HEADER = [
  '',
  'start to programmed, s',
  'of it CPU',
  'RSS at start, MiB',
  'after 5 s',
  'after changes',
  'peak',
  'event to kernel, ms: p50',
  'p99',
  'of it programming, mean',
];

/** Runs inside the namespace: the API server, and one agent after the other. */
async function runInside(): Promise<void> {
  const api = await startApi({ serviceCidrs: [SERVICE_CIDR] });
  try {
    const client = createClient(api.transport, 'bench');
    for (let i = 0; i < Math.min(50, SERVICES); i++) {
      await client.create(RESOURCES.namespaces, { metadata: { name: `team-${i}` } });
    }
    await client.create(RESOURCES.nodes, { metadata: { name: NODE } });
    const addresses = [{ type: 'InternalIP', address: NODE_ADDRESS }];
    await client.patch(RESOURCES.nodes, NODE, 'merge', { status: { addresses } }, { subresource: 'status' });
    const owners: Service[] = [];
    const started = performance.now();
    for (let i = 0; i < SERVICES; i++) {
      const owner = await client.create(RESOURCES.services, serviceObject(serviceOf(i)));
      owners.push(owner);
      for (const slice of sliceObjects(serviceOf(i), owner))
        await client.create(RESOURCES.endpointSlices, slice);
    }
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    console.log(
      `${SERVICES} Services x ${ENDPOINTS} endpoints, made in ${seconds} s; node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}`,
    );
    const rows = [HEADER];
    for (const part of options.parts.split(',')) rows.push(await measure(api, part, owners));
    printTable(rows);
  } finally {
    await api.close();
  }
}

await (options.inside ? runInside() : runInOwnNamespace('agent', import.meta.filename));
