import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type TracedFlow, traceFlow } from '../../src/cluster/trace-flow.ts';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import type { Pod } from '../../src/kube/types.ts';
import { hostPort } from '../../src/lib/address.ts';
import { renderExplanation } from '../../src/observe/explain-text.ts';
import { endText } from '../../src/trace/hops.ts';
import { renderTrace } from '../../src/trace/trace-text.ts';
import { type Cluster, startCluster } from './cluster.ts';
import { clusterPlaces } from './cluster-places.ts';
import { inContext } from './in-context.ts';
import { captureMissing, type PlainPacket, startPlainCapture } from './plain-capture.ts';
import { capturedWays, tracedWays } from './plain-ways.ts';
import {
  ALL_PORTS,
  CLIENTS,
  expectedAnswer,
  type FreeAddresses,
  type MatrixRow,
  matrixObjects,
  matrixRows,
  portsOf,
  SILENT_POD,
  targetOf,
} from './trace-matrix-scene.ts';

/** The number of packets that are traced at the same time. */
const CONCURRENCY = 12;

/** A row's traced packet. */
interface TracedRow {
  readonly row: MatrixRow;
  readonly flow: PromiseSettledResult<TracedFlow>;
  readonly beginNs: bigint;
  readonly endNs: bigint;
}

/** Greater than the number of rows of a mode, so that the next one has other rows. */
const ROTATION = 29;

/**
 * Traces a packet of each row in each mode, while tcpdump captures all devices of the cluster, and compares the hops of each
 * trace with the capture. `upOptions`: of `fairlead up`. `first`: the rotation of the first mode's rows.
 */
export function testTraceMatrix(modes: readonly Mode[], upOptions: readonly string[], first: number): void {
  describe('the hops of a trace are those of a plain packet capture', { skip: captureMissing() }, () => {
    let cluster: Cluster;
    let pods: Pod[];
    let free: FreeAddresses;
    before(async () => {
      cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', ...upOptions]);
      free = { here: await freeAddresses(cluster, 'node-1'), there: await freeAddresses(cluster, 'node-2') };
      await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'List', items: matrixObjects(free) }));
      await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s');
      pods = (JSON.parse(await cluster.ask('get', 'pods', '-A', '-o', 'json')) as { items: Pod[] }).items;
      const { status, error } = await cluster.fairlead('fault', 'silent', SILENT_POD);
      assert.equal(status, 0, error);
    });
    after(() => cluster?.down());
    for (const [index, mode] of modes.entries()) {
      const rows = matrixRows((first + index) * ROTATION);
      test(`${mode} mode`, async (t) => {
        const { status, error } = await cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
        // The wire is a switch between the hosts, and no hop.
        const capture = await startPlainCapture(clusterPlaces(cluster, pods));
        try {
          const traced = await traceRows(cluster, pods, rows);
          const packets = await capture.stop();
          for (const one of traced)
            await t.test(one.row.name, () =>
              compareRow(cluster, [...podAddresses(pods), ...free.here, ...free.there], mode, one, packets),
            );
        } finally {
          capture.cancel();
        }
      });
    }
  });
}

async function traceRows(
  cluster: Cluster,
  pods: readonly Pod[],
  rows: readonly MatrixRow[],
): Promise<TracedRow[]> {
  const state = cluster.state();
  const now = () => BigInt(Date.now()) * 1_000_000n;
  const traceRow = async (row: MatrixRow): Promise<TracedRow> => {
    const beginNs = now();
    const to = targetOf(row, nodeAddresses(cluster, row)[0] ?? '');
    const family = row.family === 4 ? 'ipv4' : 'ipv6';
    const [flow] = await Promise.allSettled([
      traceFlow(state, pods, { from: CLIENTS[row.origin].from, to, family }),
    ]);
    return { row, flow, beginNs, endNs: now() };
  };
  const results: TracedRow[] = [];
  const waiting = rows[Symbol.iterator]();
  const work = async () => {
    for (const row of waiting) results.push(await traceRow(row));
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  return results;
}

/** The nodes' addresses of the row's family. */
const nodeAddresses = (cluster: Cluster, { family }: MatrixRow): string[] =>
  cluster.state().nodes.map(({ addresses }) => addresses[family === 4 ? 0 : 1] ?? '');

/** `endpoints`: all addresses of endpoints. */
function compareRow(
  cluster: Cluster,
  endpoints: readonly string[],
  mode: Mode,
  { row, flow, ...times }: TracedRow,
  packets: readonly PlainPacket[],
): void {
  if (flow.status === 'rejected') throw flow.reason;
  const { explanation, trace, agreement } = flow.value;
  assert.ok(trace && agreement, renderExplanation(explanation));
  const text = renderTrace(explanation, trace, agreement);
  const first = trace.legs[0]?.hops[0];
  const captured = capturedWays(packets, {
    protocol: row.protocol,
    servers: serversOf(cluster, endpoints, row, explanation.packet?.destination ?? ''),
    otherPorts: otherPortsOf(row),
    client: { place: CLIENTS[row.origin].place, end: first ? endText(first.source) : null },
    ...times,
  });
  const wrong = agreement.steps.filter(({ isRight }) => isRight === false);
  inContext(text, () => {
    assert.deepEqual(tracedWays(trace.legs), captured);
    assert.equal(trace.answer.kind, expectedAnswer(row, mode));
    assert.equal(trace.lostFrames, 0);
    assert.equal(agreement.isVerdictRight, true);
    assert.deepEqual(wrong, []);
  });
}

/** The ports of the Services of other rows. */
function otherPortsOf({ service }: MatrixRow): ReadonlySet<number> {
  const own = portsOf(service);
  return new Set(ALL_PORTS.filter((port) => !own.includes(port)));
}

/** The addresses and ports that belong to a row's Service only. */
function serversOf(
  cluster: Cluster,
  endpoints: readonly string[],
  row: MatrixRow,
  asked: string,
): ReadonlySet<string> {
  const { port, targetPort, nodePort } = row.service;
  const ends = [
    { ip: asked, port },
    ...nodeAddresses(cluster, row).map((ip) => ({ ip, port: nodePort })),
    ...endpoints.map((ip) => ({ ip, port: targetPort })),
  ];
  return new Set(ends.filter(({ ip }) => ip.includes(':') === (row.family === 6)).map(hostPort));
}

const podAddresses = (pods: readonly Pod[]): string[] =>
  pods.flatMap(({ status }) => (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []));

/** Returns an address of each family in the pod network of a node, which no pod has. */
async function freeAddresses(cluster: Cluster, node: string): Promise<string[]> {
  const cidrs = await cluster.ask('get', 'node', node, '-o', 'jsonpath={.spec.podCIDRs[*]}');
  return cidrs.split(' ').map((cidr) => cidr.replace(/0\/24$/, '250').replace(/::\/64$/, '::fa'));
}
