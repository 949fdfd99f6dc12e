import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { getLink, openRouteSocket, setLink } from '../src/kernel/rtnetlink/links.ts';
import type { EgressGatewayObject } from '../src/kube/egress-gateway.ts';
import type { Pod } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { type ClusterPlace, clusterPlaces } from './testing/cluster-places.ts';
import { captureSources, type EgressAttempt, sourceServer, startEgressLoad } from './testing/egress-load.ts';

/** How often each cause is repeated; "routes" or "vxlan". */
const ROUNDS = Number(process.env['FAIRLEAD_EGRESS_ROUNDS'] ?? 1);
const OVERLAY = process.env['FAIRLEAD_EGRESS_OVERLAY'] ?? 'routes';
const NODES = ['node-1', 'node-2', 'node-3'];
/** In the wire's network, and not in the pool of load-balancer addresses. */
const ADDRESSES = ['172.30.0.190', 'fd00:172:30::190'];
const EVERY_MS = 25;

const pods = NODES.map(
  (node) => `
apiVersion: v1
kind: Pod
metadata: {name: client-${node}, labels: {egress: partner}}
spec:
  nodeName: ${node}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: fairlead, command: [fairlead, echo, --port=8080]}]
---
apiVersion: v1
kind: Pod
metadata: {name: other-${node}, labels: {app: other}}
spec:
  nodeName: ${node}
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: fairlead, command: [fairlead, echo, --port=8080]}]
---`,
).join('');

const gateway = `
apiVersion: fairlead.dev/v1alpha1
kind: EgressGateway
metadata: {name: partner}
spec:
  podSelector: {matchLabels: {egress: partner}}
  addresses: ["${ADDRESSES.join('", "')}"]
`;

let cluster: Cluster;
let server: Awaited<ReturnType<typeof sourceServer>>;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '--ip-family', 'dual', '--overlay', OVERLAY]);
  server = await sourceServer(`fl-${cluster.name}-outside`);
  await cluster.apply(pods + gateway);
  await cluster.ask('wait', '--for=condition=Ready', 'pods', '--all', '--timeout=120s');
});
after(async () => {
  server?.close();
  await cluster?.down();
});

const read = async () =>
  JSON.parse(await cluster.ask('get', 'egressgateway', 'partner', '-o', 'json')) as EgressGatewayObject;
const holders = (one: EgressGatewayObject) =>
  new Map((one.status?.addresses ?? []).map(({ address, node = '' }) => [address, node]));
const ready = async (holds: (nodes: ReadonlyMap<string, string>) => boolean = () => true) =>
  holders(
    await eventually(
      read,
      (one) =>
        one.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True' &&
        holds(holders(one)),
      60_000,
    ),
  );
const hosts = () => cluster.state().outsideAddresses;
const places = async (label: string): Promise<ClusterPlace[]> => {
  const found = JSON.parse(await cluster.ask('get', 'pods', '-l', label, '-o', 'json')) as { items: Pod[] };
  const running = found.items.filter(({ metadata }) => !metadata?.name?.startsWith('late-'));
  return clusterPlaces(cluster, running).filter(({ name }) => name.startsWith('pod '));
};
const sourcesOf = async ({ netns }: ClusterPlace): Promise<string[]> => {
  const load = startEgressLoad({ path: netns }, hosts(), server.port, EVERY_MS);
  const seen = (host: string) => load.attempts.some((one) => one.host === host && one.error === null);
  try {
    await eventually(() => hosts().every(seen), Boolean, 30_000);
  } finally {
    await load.stop();
  }
  return [...new Set((await load.stop()).map(({ source }) => source).filter((one) => one !== ''))].sort();
};

test('a host outside sees the addresses of the gateway from the pods of every node, and nodes from others', async () => {
  await ready();
  for (const place of await places('egress=partner'))
    assert.deepEqual(await sourcesOf(place), [...ADDRESSES].sort(), place.name);
  for (const place of await places('app=other')) {
    const sources = await sourcesOf(place);
    assert.ok(sources.length === 2 && !sources.some((one) => ADDRESSES.includes(one)), `${sources}`);
  }
});

test('status, columns, events and explain name the node', async () => {
  const nodes = await ready();
  const [ipv4 = ''] = ADDRESSES;
  const node = nodes.get(ipv4) ?? '';
  const status = (await eventually(read, (one) => one.status?.pods === 3)).status;
  assert.deepEqual(status?.nodes?.split(',').sort(), [...new Set(nodes.values())].sort());
  assert.match(await cluster.ask('get', 'egw'), new RegExp(`partner .*${status?.nodes} +3 +True`));
  await eventually(
    () => cluster.ask('describe', 'egw', 'partner'),
    (text) => text.includes(`${node} translates to ${ipv4}`),
  );
  const explained = await cluster.fairlead('explain', 'client-node-1', `${hosts()[0]}:${server.port}`, '-v');
  assert.match(explained.out, /^DELIVERED/m);
  assert.match(explained.out, new RegExp(`leaves by node ${node} with the source ${ipv4}`));
  const traced = await cluster.fairlead('trace', 'client-node-1', `${hosts()[0]}:${server.port}`);
  assert.match(traced.out, new RegExp(`${ipv4.replaceAll('.', '\\.')}:\\d+ → ${hosts()[0]}:${server.port}`));
  assert.match(traced.out, /explain: DELIVERED, which is right/);
});

test('a pod that starts later leaves with the address from its first packet', async () => {
  await ready();
  const capture = await captureSources(`fl-${cluster.name}-outside`, server.port);
  const [host = ''] = hosts();
  const names = Array.from({ length: 5 }, (_, i) => `late-${i}`);
  await cluster.apply(
    names
      .map(
        (name) => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: {egress: partner}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: fairlead, command: [fairlead, request, "http://${host}:${server.port}", "--count", "20"]}]
---`,
      )
      .join(''),
  );
  await eventually(
    async () =>
      await cluster.ask('get', 'pods', '-l', 'egress=partner', '-o', 'jsonpath={.items[*].status.phase}'),
    (text) =>
      text.split(' ').filter((phase) => phase === 'Succeeded' || phase === 'Failed').length === names.length,
    60_000,
  );
  await setTimeout(500);
  assert.equal(await capture.stop(), 0);
  assert.deepEqual([...capture.sources.keys()], [ADDRESSES[0]]);
  assert.ok((capture.sources.get(ADDRESSES[0] ?? '') ?? 0) >= names.length);
  await cluster.ask('delete', 'pods', ...names, '--wait=true');
});

const plug = (node: string, up: boolean) => {
  using socket = openRouteSocket(`fl-${cluster.name}-wire`);
  setLink(socket, getLink(socket, node).index, { up });
};
const kill = (node: string) => {
  const pid = cluster.state().nodes.find(({ name }) => name === node)?.agent?.pid;
  assert.ok(pid);
  process.kill(pid, 'SIGKILL');
};

/** How a node fails, and how it returns. */
const CAUSES: Readonly<Record<string, readonly [(node: string) => unknown, (node: string) => unknown]>> = {
  'agent killed': [kill, () => {}],
  'link lost': [(node) => plug(node, false), (node) => plug(node, true)],
  'power off': [
    (node) => {
      plug(node, false);
      kill(node);
    },
    (node) => plug(node, true),
  ],
  cordoned: [(node) => cluster.ask('cordon', node), (node) => cluster.ask('uncordon', node)],
};

/** Lets the node with the first address fail under load; returns what clients of the other nodes noticed. */
async function failOver(t: TestContext, cause: string): Promise<void> {
  const [fail, mend] = CAUSES[cause] ?? [() => {}, () => {}];
  const before = await ready();
  const victim = before.get(ADDRESSES[0] ?? '') ?? '';
  const lost = [...before].filter(([, node]) => node === victim).map(([address]) => address);
  const outside = `fl-${cluster.name}-outside`;
  const capture = await captureSources(outside, server.port);
  // The pods of the failing node have no way out.
  const clients = (await places('egress=partner')).filter(
    ({ name }) => name.includes('client-') && !name.endsWith(victim),
  );
  const loads = clients.map(({ netns }) => startEgressLoad({ path: netns }, hosts(), server.port, EVERY_MS));
  const all = () => loads.flatMap(({ attempts }) => attempts);
  try {
    await eventually(
      () => all().filter(({ error }) => error === null).length,
      (count) => count > 100,
      30_000,
    );
    const cut = Date.now();
    await fail(victim);
    if (cause !== 'agent killed')
      await ready((nodes) => lost.every((address) => !['', victim].includes(nodes.get(address) ?? '')));
    const since = Date.now();
    await eventually(
      () =>
        loads.map(({ attempts }) => attempts.filter((one) => one.begun > since && one.error === null).length),
      (counts) => counts.every((count) => count > 40),
      60_000,
    );
    const gaps = loads.flatMap(({ attempts }) => hosts().map((host) => gapAfter(attempts, host, cut)));
    await mend(victim);
    await eventually(
      () =>
        cluster.ask('get', 'node', victim, '-o', 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'),
      (status) => status === 'True',
      60_000,
    );
    await setTimeout(1500);
    const attempts = (await Promise.all(loads.map((one) => one.stop()))).flat();
    await setTimeout(300);
    const dropped = await capture.stop();
    const packets = [...capture.sources.values()].reduce((sum, count) => sum + count, 0);
    const foreign = [...capture.sources].filter(([source]) => !ADDRESSES.includes(source));
    const failed = attempts.filter(({ error }) => error !== null).length;
    t.diagnostic(
      `${OVERLAY}, ${cause}: longest gap of new connections ${Math.max(...gaps)} ms, of ${attempts.length} connections ${failed} failed; outside ${packets} packets, ${foreign.length} foreign sources, ${dropped} not captured`,
    );
    assert.deepEqual(foreign, []);
    // Back, and without an address that moved to and fro.
    const now = await ready();
    if (cause !== 'agent killed') for (const address of lost) assert.notEqual(now.get(address), victim);
  } finally {
    await mend(victim);
    await Promise.all(loads.map((one) => one.stop()));
    await capture.stop();
  }
}

/** Returns the longest time without a new connection to a host that was answered. */
function gapAfter(attempts: readonly EgressAttempt[], host: string, cut: number): number {
  const ends = attempts
    .filter((one) => one.host === host && one.error === null && one.ended >= cut - 500)
    .map(({ ended }) => ended)
    .sort((a, b) => a - b);
  return Math.max(0, ...ends.map((end, i) => end - (ends[i - 1] ?? end)));
}

for (const cause of Object.keys(CAUSES)) {
  test(`${cause}: new connections go on with the same address, and no packet has another source`, async (t) => {
    for (let round = 0; round < ROUNDS; round++) await failOver(t, cause);
  });
}
