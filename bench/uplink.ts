/**
 * Traffic from outside the cluster to an endpoint of this node, in the eBPF mode: carried by the programs at the uplink,
 * beside the same Service carried by the mode's nf_tables table, beside the bare address of the pod. Client, node and
 * pod are network namespaces made for it.
 *
 * taskset -c 1 node bench/uplink.ts [--rounds 5] [--services 100]
 *
 * All figures are processor time of client and server together, which includes the kernel's work for their packets, so
 * that other work on the machine hardly counts. Subjects take turns; ratios are medians of the turns' ratios.
 */
import { rmdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createEbpf } from '../src/dataplane/ebpf/ebpf.ts';
import { ConntrackConnection } from '../src/kernel/conntrack/connection.ts';
import { FLOW_STATUS } from '../src/kernel/conntrack/flow.ts';
import { controlGroupRoot } from '../src/kernel/control-group.ts';
import { createServiceTable } from '../src/service/service-table.ts';
import { network, testNode } from '../src/service/testing/test-node.ts';
import type { Task } from './connect-peer.ts';
import { largeService, largeSlice, podAddress } from './large-cluster.ts';
import { printTable } from './print-table.ts';
import { type RoutedPods, routePods } from './routed-pods.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    services: { type: 'string', default: '100' },
  },
});
const ROUNDS = Number(values.rounds);
const SERVICES = Number(values.services);
const TIMES: Readonly<Record<Task['what'], number>> = { connect: 4000, request: 3000, open: 20_000 };
/** Of a request on an open connection: the request and the answer, which acknowledges it. */
const PACKETS_PER_REQUEST = 2;

const loadBalancer = (i: number) => `12.0.${i >> 8}.${i & 255}`;

interface Node {
  readonly pods: RoutedPods;
  close(): Promise<void>;
}

async function startNode(name: string, uplink: boolean): Promise<Node> {
  const prefix = `flu-${process.pid}-${name}`;
  const pods = await routePods(prefix, '192.168.0.1', null);
  const root = controlGroupRoot();
  if (root === null) throw new Error('this needs a cgroup v2 hierarchy');
  // A group of its own, without processes: the client is outside, and its sockets are left alone.
  const cgroup = join(root, prefix);
  const dataplane = await createEbpf({
    families: ['ipv4'],
    netns: pods.node,
    cgroup,
    pinPath: `/run/${prefix}-bpf`,
    ...(uplink ? { uplink: 'client' } : {}),
  });
  const close = async () => {
    await dataplane.remove();
    await dataplane.close();
    await pods.close();
    rmdirSync(cgroup);
  };
  const table = createServiceTable(
    testNode({
      name: 'node-0',
      ipv6: null,
      serviceCidrs: [network('11.0.0.0/8')],
      localDetection: { mode: 'ClusterCIDR', ipv4: network('10.0.0.0/10'), ipv6: null },
    }),
  );
  for (let i = 0; i < SERVICES; i++) {
    const { metadata, spec } = largeService(i);
    table.setService({
      metadata,
      spec: { ...spec, type: 'LoadBalancer', externalTrafficPolicy: 'Local' },
      status: { loadBalancer: { ingress: [{ ip: loadBalancer(i), ipMode: 'VIP' }] } },
    });
    // 100 nodes share the pods: these are this node's.
    table.setSlice(largeSlice(i, [i * 100]));
  }
  const { failed } = await dataplane.sync(table.commit().map);
  if (failed[0]) throw failed[0].error;
  return { pods, close };
}

/** Flows that nf_tables translated on a node. */
function translated(pods: RoutedPods): number {
  const conntrack = new ConntrackConnection(pods.node);
  try {
    const { destinationNat } = FLOW_STATUS;
    return conntrack.list('ipv4', { protocol: 6, status: { mask: destinationNat, value: destinationNat } })
      .length;
  } finally {
    conntrack.close();
  }
}

const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;

const nodes = { nftables: await startNode('nft', false), uplink: await startNode('up', true) };
try {
  const all = Array.from({ length: SERVICES }, (_, i) => i);
  const services = all.map((i) => [loadBalancer(i), 80] as const);
  const bare = all.map((i) => [podAddress(i * 100), 8080] as const);
  const subjects = [
    { title: 'the pod itself', pods: nodes.nftables.pods, targets: bare },
    { title: 'nf_tables', pods: nodes.nftables.pods, targets: services },
    { title: 'programs at the uplink', pods: nodes.uplink.pods, targets: services },
  ];
  const used = subjects.map(() => ({
    connect: [] as number[],
    request: [] as number[],
    open: [] as number[],
  }));
  for (let round = -1; round < ROUNDS; round++) {
    for (const what of ['connect', 'request', 'open'] as const) {
      const order = [...subjects.keys()];
      if (round % 2) order.reverse();
      for (const i of order) {
        const { pods, targets } = subjects[i] as (typeof subjects)[number];
        const before = pods.processorTime();
        await pods.ask({ what, targets, times: TIMES[what] });
        const micros = (pods.processorTime() - before) / 1000 / TIMES[what];
        if (round >= 0) used[i]?.[what].push(micros);
      }
    }
  }
  console.log(
    `node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}; medians of ${ROUNDS} rounds, ${SERVICES} Services; processor time of client and server`,
  );
  const rows = [
    ['', 'connections/s', 'of nf_tables', 'connect+request/s', 'of nf_tables', 'µs a packet', 'of nf_tables'],
  ];
  const baseline = used[1];
  for (const [i, { title }] of subjects.entries()) {
    const own = used[i];
    if (!own || !baseline) continue;
    const ratio = (what: Task['what'], isRate: boolean) =>
      median(
        own[what].map((value, at) => {
          const other = baseline[what][at] ?? Number.NaN;
          return isRate ? other / value : value / other;
        }),
      ).toFixed(3);
    rows.push([
      title,
      (1e6 / median(own.connect)).toFixed(0),
      ratio('connect', true),
      (1e6 / median(own.request)).toFixed(0),
      ratio('request', true),
      (median(own.open) / PACKETS_PER_REQUEST).toFixed(2),
      ratio('open', false),
    ]);
  }
  printTable(rows);
  const flows = { nftables: translated(nodes.nftables.pods), uplink: translated(nodes.uplink.pods) };
  if (flows.uplink > 0 || flows.nftables === 0)
    throw new Error(
      `not what was to be measured: ${JSON.stringify(flows)} flows were translated by nf_tables`,
    );
} finally {
  for (const node of Object.values(nodes)) await node.close();
}
