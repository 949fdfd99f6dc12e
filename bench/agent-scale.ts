/**
 * A node's agent in a large cluster: how long from its start until the kernel has every Service, what it keeps in
 * memory, and how long from a change of an EndpointSlice to the kernel's map. The agent is a process of its own, as
 * on any node, in a network namespace made for it; the API server beside it is Fairlead's own, reached over HTTPS.
 *
 * node bench/agent-scale.ts [--services 10000] [--changes 200] [--parts proxy,proxy+dns] [--mode nftables]
 */
import { randomUUID } from 'node:crypto';
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createNetns, removeNetns, spawnInNetns } from '../src/kernel/netns.ts';
import { watchNftables } from '../src/kernel/nftables/events.ts';
import { type Client, createClient } from '../src/kube/client.ts';
import { type EndpointSlice, RESOURCES, type Service } from '../src/kube/types.ts';
import { type ApiFixture, startApi } from './api-fixture.ts';
import {
  type MeasuredProcess,
  processorTime,
  quantileOf,
  residentMemory,
  startAgent,
} from './measured-process.ts';
import { printTable } from './print-table.ts';

const ENDPOINTS = 10;
const NODES = 100;
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

const name = (i: number) => ({ namespace: `team-${i % 50}`, name: `service-${i}` });
const podAddress = (i: number) => `10.${128 + ((i >> 16) & 127)}.${(i >> 8) & 255}.${i & 255}`;

function service(i: number): Service {
  return {
    metadata: { ...name(i), labels: { app: `service-${i}`, tier: 'backend' } },
    spec: {
      selector: { app: `service-${i}` },
      ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 'http' }],
    },
  };
}

/** Returns a slice as the controller writes it for a Deployment's pods. */
function slice(i: number, owner: Service, pods: readonly number[]): EndpointSlice {
  return {
    metadata: {
      namespace: `team-${i % 50}`,
      name: `service-${i}-x7k2p`,
      labels: {
        'kubernetes.io/service-name': `service-${i}`,
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        app: `service-${i}`,
        tier: 'backend',
      },
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': now() },
      ownerReferences: [
        {
          apiVersion: 'v1',
          kind: 'Service',
          name: `service-${i}`,
          uid: owner.metadata?.uid ?? '',
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: pods.map((pod) => ({
      addresses: [podAddress(pod)],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: `node-${pod % NODES}`,
      zone: `zone-${pod % 3}`,
      targetRef: {
        kind: 'Pod',
        namespace: `team-${i % 50}`,
        name: `service-${i}-6d4cf56db6-${(pod % 46656).toString(36).padStart(5, 'x')}`,
        uid: randomUUID(),
      },
    })),
  };
}

const now = () => `${new Date().toISOString().slice(0, 19)}Z`;

/** Returns sum and count of a histogram of the agent. */
async function histogram(metric: string): Promise<{ sum: number; count: number }> {
  const text = await (await fetch('http://127.0.0.1:10249/metrics')).text();
  const value = (suffix: string) => Number(new RegExp(`^${metric}_${suffix} (\\S+)`, 'm').exec(text)?.[1]);
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
  const pods = (i: number) => Array.from({ length: ENDPOINTS }, (_, e) => i * ENDPOINTS + e);
  const latencies: number[] = [];
  for (let k = 0; k < CHANGES; k++) {
    const i = (k * 7919) % SERVICES;
    const owner = owners[i];
    if (!owner) throw new RangeError();
    // Adds an endpoint, then removes it.
    for (const wanted of [[...pods(i), SERVICES * ENDPOINTS + k], pods(i)]) {
      const changed = slice(i, owner, wanted);
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
      const owner = await client.create(RESOURCES.services, service(i));
      owners.push(owner);
      const pods = Array.from({ length: ENDPOINTS }, (_, e) => i * ENDPOINTS + e);
      await client.create(RESOURCES.endpointSlices, slice(i, owner, pods));
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

async function runOutside(): Promise<void> {
  const netns = `flb-${process.pid}-agent`;
  createNetns(netns);
  try {
    const args = [...process.execArgv, import.meta.filename, ...process.argv.slice(2), '--inside'];
    const child = spawnInNetns(netns, process.execPath, args, { stdio: 'inherit' });
    process.exitCode = await new Promise<number>((resolve) =>
      child.once('close', (code) => resolve(code ?? 1)),
    );
  } finally {
    removeNetns(netns);
  }
}

await (options.inside ? runInside() : runOutside());
