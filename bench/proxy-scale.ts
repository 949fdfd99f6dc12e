/**
 * A proxy in a large cluster under churn: Fairlead's agent and kube-proxy, both in nftables mode, one after the other
 * against the same API server. Each is a process of its own in a network namespace made for it. A change is a pod that
 * replaces another one in an EndpointSlice; its lag lasts from the API server's answer to the writer until the kernel has
 * committed the transaction with the new pod's address.
 *
 * node bench/proxy-scale.ts [--services 10000] [--endpoints 250000] [--rates 20,200] [--seconds 20] [--nodes 0]
 *   [--kube-proxy PROGRAM]
 *
 * Neither program reads pods: the cluster has only the Services, their EndpointSlices, the proxies' node, and `--nodes`
 * others, whose kubelets report every five minutes. Both read only their own node.
 */
import { existsSync, readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { NETLINK_NETFILTER, NetlinkSocket } from '../src/kernel/netlink/socket.ts';
import { NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG } from '../src/kernel/nftables/constants.ts';
import { type Client, createClient } from '../src/kube/client.ts';
import { RESOURCES, type Service } from '../src/kube/types.ts';
import { startApi } from './api-fixture.ts';
import { type MeasuredProcess, quantileOf, startAgent, startKubeProxy } from './measured-process.ts';
import { runInOwnNamespace } from './own-namespace.ts';
import { printTable } from './print-table.ts';
import { processorTime, residentMemory } from './process-usage.ts';
import { NODE, type ScaleService, scaleServices, serviceObject, sliceObjects } from './scale-cluster.ts';
import { createNodes, reportNodes } from './scale-node.ts';

const POD_CIDR = '10.128.0.0/9';
const SERVICE_CIDR = '10.96.0.0/12';
/** The addresses of new pods: 10.255.0.0/16, in which no other pod is. */
const NEW_PODS = Buffer.from([10, 255]);
/** How long the last changes may take to reach the kernel. */
const DRAIN_MS = 60_000;

const { values: options } = parseArgs({
  options: {
    services: { type: 'string', default: '10000' },
    endpoints: { type: 'string', default: '250000' },
    rates: { type: 'string', default: '20,200' },
    seconds: { type: 'string', default: '20' },
    nodes: { type: 'string', default: '0' },
    'kube-proxy': {
      type: 'string',
      default: join(process.env['KUBEBUILDER_ASSETS'] ?? '/usr/local/bin', 'kube-proxy'),
    },
    inside: { type: 'boolean', default: false },
  },
});
const RATES = options.rates.split(',').map(Number);
const OTHER_NODES = Number(options.nodes);
const SECONDS = Math.min(60, Number(options.seconds));

interface Owned {
  readonly service: ScaleService;
  readonly owner: Service;
}

/** Reports the numbers of new pods when the kernel has committed a transaction with their addresses. */
function watchNewPods(onCommitted: (pods: readonly number[]) => void): { close(): void } {
  const socket = new NetlinkSocket({ protocol: NETLINK_NETFILTER, receiveBuffer: 64 << 20 });
  let found: number[] = [];
  socket.subscribe(
    [NFNLGRP_NFTABLES],
    ({ type, payload }) => {
      if (type >> 8 !== NFNL_SUBSYS_NFTABLES) return;
      const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
      for (
        let at = bytes.indexOf(NEW_PODS);
        at >= 0 && at + 4 <= bytes.length;
        at = bytes.indexOf(NEW_PODS, at + 1)
      )
        found.push(bytes.readUInt16BE(at + 2));
      if ((type & 0xff) !== NFT_MSG.newGeneration) return;
      if (found.length > 0) onCommitted(found);
      found = [];
    },
    () => console.error('events of the kernel were lost'),
  );
  return socket;
}

interface Churn {
  readonly cpu: number;
  readonly lags: readonly number[];
  readonly bytes: number;
  /** Changes whose address the kernel did not get. */
  readonly missing: number;
}

/** Makes `rate` changes a second. `first`: the number of the first new pod. */
async function churn(
  client: Client,
  proxy: MeasuredProcess,
  all: readonly Owned[],
  rate: number,
  first: number,
): Promise<Churn> {
  const told = new Map<number, number>();
  const committed = new Map<number, number>();
  const watch = watchNewPods((pods) => {
    const now = performance.now();
    for (const pod of pods) if (!committed.has(pod)) committed.set(pod, now);
  });
  const cpu = processorTime(proxy.pid);
  const bytes = loopbackBytes();
  const started = performance.now();
  const stopReports = OTHER_NODES > 0 ? reportNodes(client, OTHER_NODES) : () => {};
  const writes: Promise<void>[] = [];
  const count = rate * SECONDS;
  for (let k = 0; k < count; k++) {
    const due = started + (k * 1000) / rate - performance.now();
    if (due > 1) await sleep(due);
    const pod = first + k;
    const changed = all[(pod * 7919) % all.length];
    if (!changed) throw new RangeError('no Services');
    const [slice] = sliceObjects(changed.service, changed.owner, `10.255.${pod >> 8}.${pod & 255}`);
    if (!slice) throw new RangeError('a Service without slices');
    writes.push(
      client.update(RESOURCES.endpointSlices, slice).then(() => void told.set(pod, performance.now())),
    );
  }
  await Promise.all(writes);
  for (const until = performance.now() + DRAIN_MS; performance.now() < until; ) {
    if ([...told.keys()].every((pod) => committed.has(pod))) break;
    await sleep(20);
  }
  watch.close();
  stopReports();
  const seconds = (performance.now() - started) / 1000;
  const lags = [...told].flatMap(([pod, at]) => {
    const end = committed.get(pod);
    return end === undefined ? [] : [Math.max(0, end - at)];
  });
  return {
    cpu: (processorTime(proxy.pid) - cpu) / seconds,
    lags,
    bytes: (loopbackBytes() - bytes) / seconds,
    missing: told.size - lags.length,
  };
}

/** The proxy alone uses loopback here: the writer calls the API server in its own process. */
function loopbackBytes(): number {
  const line = readFileSync('/proc/thread-self/net/dev', 'utf8').match(/^\s*lo:\s*(\d+)/m);
  return Number(line?.[1]);
}

const HEADER = [
  '',
  'start to programmed, s',
  'CPU, s',
  'from the API, MB',
  'RSS, MiB',
  ...RATES.flatMap((rate) => [
    `${rate}/s: CPU, % of a core`,
    'lag p50, ms',
    'p99',
    'max',
    'from the API, kB/s',
  ]),
  'RSS after, MiB',
  'peak',
];

async function measure(
  title: string,
  start: () => Promise<MeasuredProcess>,
  client: Client,
  all: readonly Owned[],
  firstPod: () => number,
): Promise<string[]> {
  const bytes = loopbackBytes();
  const proxy = await start();
  try {
    const spent = processorTime(proxy.pid);
    const listed = (loopbackBytes() - bytes) / 1e6;
    const { now } = residentMemory(proxy.pid);
    await sleep(5000);
    const cells: string[] = [];
    for (const rate of RATES) {
      const { cpu, lags, bytes, missing } = await churn(client, proxy, all, rate, firstPod());
      if (missing > 0) console.error(`${title}: ${missing} changes did not reach the kernel`);
      cells.push(
        (cpu * 100).toFixed(1),
        ...[0.5, 0.99, 0.9999].map((quantile) => quantileOf(lags, quantile).toFixed(1)),
        (bytes / 1e3).toFixed(0),
      );
    }
    const after = residentMemory(proxy.pid);
    const mib = (value: number) => (value / 2 ** 20).toFixed(0);
    return [
      title,
      (proxy.readyMs / 1000).toFixed(1),
      spent.toFixed(1),
      listed.toFixed(0),
      mib(now),
      ...cells,
      mib(after.now),
      mib(after.peak),
    ];
  } finally {
    await proxy.stop();
  }
}

/** Runs inside the namespace: the API server, and one proxy after the other. */
async function runInside(): Promise<void> {
  const api = await startApi({ serviceCidrs: [SERVICE_CIDR] });
  try {
    const client = createClient(api.transport, 'bench');
    const services = scaleServices(Number(options.services), Number(options.endpoints));
    for (let i = 0; i < Math.min(50, services.length); i++) {
      await client.create(RESOURCES.namespaces, { metadata: { name: `team-${i}` } });
    }
    await client.create(RESOURCES.nodes, NODE);
    const addresses = [{ type: 'InternalIP', address: '192.0.2.10' }];
    const name = NODE.metadata?.name ?? '';
    await client.patch(RESOURCES.nodes, name, 'merge', { status: { addresses } }, { subresource: 'status' });
    await createNodes(client, OTHER_NODES);
    const all: Owned[] = [];
    for (const service of services) {
      const owner = await client.create(RESOURCES.services, serviceObject(service));
      for (const slice of sliceObjects(service, owner)) await client.create(RESOURCES.endpointSlices, slice);
      all.push({ service, owner });
    }
    const endpoints = services.reduce((sum, { pods }) => sum + pods.length, 0);
    console.log(
      `${services.length} Services, ${endpoints} endpoints; node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}`,
    );
    const last = all.at(-1)?.owner.spec?.clusterIP ?? '';
    const measured = { api, node: name, podCidr: POD_CIDR, serviceCidr: SERVICE_CIDR };
    let pods = 0;
    const firstPod = () => {
      const first = pods;
      pods += Math.max(...RATES) * SECONDS;
      return first;
    };
    const rows = [HEADER];
    const agent = () => startAgent(measured, 'proxy', 'nftables');
    rows.push(await measure('Fairlead', agent, client, all, firstPod));
    const program = options['kube-proxy'];
    if (existsSync(program)) {
      const kubeProxy = () => startKubeProxy(measured, program, last);
      rows.push(await measure('kube-proxy', kubeProxy, client, all, firstPod));
    } else console.error(`kube-proxy is not measured: ${program} does not exist`);
    printTable(rows);
  } finally {
    await api.close();
  }
}

await (options.inside ? runInside() : runInOwnNamespace('scale', import.meta.filename));
