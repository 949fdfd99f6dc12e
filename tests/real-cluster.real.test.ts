import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { ginkgoCommand } from './e2e/ginkgo.ts';
import { readReport } from './e2e/ginkgo-report.ts';
import { groupNamed } from './e2e/groups.ts';
import type { Counts } from './testing/cluster.ts';
import { passedWays, wayCount } from './testing/forged-packets.ts';
import { realForgeryScene } from './testing/forgery-scene.ts';
import { SEND_REQUESTS, type Sender, type Sent, senderBegun } from './testing/load-senders.ts';
import { ASK_NAME, type Asked } from './testing/name-asker.ts';
import { type NodeSnapshot, snapshotNode } from './testing/node-snapshot.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import {
  IMAGE,
  missingForRealCluster,
  type Place,
  type RealCluster,
  startRealCluster,
} from './testing/real-cluster.ts';
import {
  clients,
  HOST_PORT,
  LOCAL_NODE_PORT,
  moreServices,
  NODE_PORT,
  webServers,
} from './testing/real-scene.ts';

/** Fairlead on real kubelets, installed as docs/install.md says, in place of kube-proxy, CoreDNS and a CNI plugin. */

const skip = missingForRealCluster() ?? false;
const LAYOUT = process.env['FAIRLEAD_IMAGE'] ?? '';
/** How long a request may take on a machine that is slow. */
const PATIENCE = ['--timeout', '15000'];

let cluster: RealCluster;
/** The objects of the installation. */
let installation = '';
/** Node → its state without Fairlead. */
const untouched = new Map<string, NodeSnapshot>();

async function counts(place: Place, url: string, ...options: readonly string[]): Promise<Counts> {
  const { out, error } = await cluster.fairlead(place, 'request', url, '-o', 'json', ...options);
  if (out === '') throw new Error(`request ${url} from ${place}: ${error}`);
  return JSON.parse(out) as Counts;
}

async function assertAnswered(place: Place, url: string): Promise<Counts> {
  const got = await counts(place, url, '--count', '10', ...PATIENCE);
  assert.deepEqual(got.failures, {}, `${url} from ${place}`);
  return got;
}

const field = (kind: string, name: string, path: string) =>
  cluster.ask('get', kind, name, '-o', `jsonpath=${path}`);
const clusterIP = (name: string) => field('service', name, '{.spec.clusterIP}');
const loadBalancerAddress = (name: string) =>
  eventually(() => field('service', name, '{.status.loadBalancer.ingress[0].ip}'), Boolean);
const nodeUrl = (node: string, port: number) => `http://${cluster.nodeAddress(node)}:${port}`;

async function agentPods(): Promise<string[]> {
  const words = ['-n', 'kube-system', 'get', 'pods', '-l', 'app.kubernetes.io/name=fairlead', '-o', 'name'];
  return (await cluster.ask(...words)).split('\n').filter(Boolean);
}

const send = (from: Place, url: string) =>
  senderBegun<Sent>(cluster.startScript(from, SEND_REQUESTS, `${url}/hostname`), `${url} from ${from}`);
const ask = (from: Place) =>
  senderBegun<Asked>(
    cluster.startScript(from, ASK_NAME, 'web.default.svc.cluster.local'),
    `queries from ${from}`,
  );

async function agentsGone(): Promise<void> {
  for (const name of ['fairlead', 'fairlead-addresses', 'fairlead-dns'])
    await cluster.ask(
      ...['-n', 'kube-system', 'wait', '--for=delete', 'pod', '--timeout=120s'],
      ...['-l', `app.kubernetes.io/name=${name}`],
    );
}

async function rollout(...words: readonly string[]): Promise<void> {
  await cluster.ask('rollout', 'status', '--timeout=180s', ...words);
}

async function manifests(...words: readonly string[]): Promise<string> {
  const { status, out, error } = await cluster.fairlead('workstation', 'manifests', ...words);
  assert.equal(status, 0, error);
  return out;
}

async function chooseMode(mode: string): Promise<void> {
  const words = ['mode', mode, '--kubeconfig', cluster.kubeconfig];
  const { status, out, error } = await cluster.fairlead('workstation', ...words);
  assert.equal(status, 0, out + error);
}

/** Replaces all pods of workloads at once, under load, and requires that no request and no DNS query is lost. */
async function replaceUnderLoad(t: TestContext, ...workloads: readonly string[]): Promise<void> {
  const address = await clusterIP('web');
  const senders: Sender<Sent>[] = await Promise.all([
    send('outside', nodeUrl('n1', NODE_PORT)),
    send('outside', nodeUrl('n2', NODE_PORT)),
    send('pod/client-1', `http://${address}`),
    send('pod/client-2', `http://${address}`),
    send('pod/client-1', 'http://web.default.svc.cluster.local'),
    send('pod/client-2', 'http://web'),
  ]);
  const askers: Sender<Asked>[] = await Promise.all([ask('pod/client-1'), ask('pod/client-2')]);
  const former = await agentPods();
  await cluster.ask('-n', 'kube-system', 'rollout', 'restart', ...workloads);
  for (const workload of workloads) await rollout('-n', 'kube-system', workload);
  const replaced = await agentPods();
  const [sent, asked] = await Promise.all([
    Promise.all(senders.map((one) => one.stop())),
    Promise.all(askers.map((one) => one.stop())),
  ]);
  assert.equal(former.filter((name) => replaced.includes(name)).length, 0);
  report(t, sent, asked);
  for (const [i, { failures }] of sent.entries()) assert.deepEqual(failures, {}, senders[i]?.what);
  for (const { sent: queries, lost, rcodes, failures } of asked)
    assert.deepEqual({ lost, rcodes, failures }, { lost: 0, rcodes: { 0: queries }, failures: {} });
}

interface TrafficRow {
  readonly name: string;
  readonly from: Place;
  readonly url: () => string | Promise<string>;
  /** The address that the server sees; absent: any. */
  readonly seenAs?: () => string;
}

/** Questions about clients outside; the exit status. */
const outsideRows = (): [from: string, to: string, says: RegExp, status: number][] => [
  ['outside', `node/n1:${NODE_PORT}`, /any client.*DELIVERED/s, 0],
  ['outside', 'svc/balanced', /announces .*DELIVERED/s, 0],
  ['outside@198.51.100.9', 'svc/local', /the server sees 198\.51\.100\.9.*DELIVERED/s, 0],
  ['outside', 'pod/guarded:8080', /NetworkPolicy default\/guarded.*DROPPED/s, 1],
  ['outside', 'svc/guarded', /not reachable from outside/, 1],
];

const rows: readonly TrafficRow[] = [
  {
    name: 'cluster IP, from a pod',
    from: 'pod/client-1',
    url: async () => `http://${await clusterIP('web')}`,
  },
  { name: 'cluster IP, from a node', from: 'node/n2', url: async () => `http://${await clusterIP('web')}` },
  {
    name: 'cluster IP, UDP',
    from: 'pod/client-2',
    url: async () => `udp://${await clusterIP('web')}:80`,
  },
  { name: 'by name, DNS over UDP', from: 'pod/client-1', url: () => 'http://web.default.svc.cluster.local' },
  { name: 'by a short name, DNS over TCP', from: 'pod/tcp-client', url: () => 'http://web' },
  { name: 'headless Service', from: 'pod/client-1', url: () => 'http://headless:8080' },
  { name: 'ExternalName', from: 'pod/client-2', url: () => 'http://alias' },
  { name: 'node port of n1, from outside', from: 'outside', url: () => nodeUrl('n1', NODE_PORT) },
  { name: 'node port of n2, from outside', from: 'outside', url: () => nodeUrl('n2', NODE_PORT) },
  {
    name: 'node port, UDP',
    from: 'outside',
    url: () => `udp://${cluster.nodeAddress('n1')}:${NODE_PORT}`,
  },
  {
    name: 'load balancer, from outside',
    from: 'outside',
    url: async () => `http://${await loadBalancerAddress('balanced')}`,
  },
  {
    name: 'load balancer with externalTrafficPolicy Local, which keeps the address of the client',
    from: 'outside',
    url: async () => `http://${await loadBalancerAddress('local')}/clientip`,
    seenAs: () => cluster.addressOf(2),
  },
  {
    name: 'node port with externalTrafficPolicy Local',
    from: 'outside',
    url: () => `${nodeUrl('n2', LOCAL_NODE_PORT)}/clientip`,
    seenAs: () => cluster.addressOf(2),
  },
  { name: 'host port', from: 'outside', url: () => nodeUrl('n1', HOST_PORT) },
  {
    name: 'a Service whose network policy admits the client',
    from: 'pod/friend',
    url: () => 'http://guarded',
  },
];

/** Paths between pods and nodes, and host ports: what differs most between containerd's pods and those of a local cluster. */
const PATHS = 'Granular Checks: Pods should function for|HostPort validates';
/** The full product also has the specs of the quick group, which tests/e2e/quick.netns.test.ts runs on a local cluster. */
const FOCUS = `\\[sig-network\\].*(${TAKES_FULL_PRODUCT ? `${groupNamed('quick').focus}|` : ''}${PATHS})`;
const SPECS = TAKES_FULL_PRODUCT ? 11 : 5;

/** The scenarios and policies of the check: without them, all. Each mode has all on a local cluster (tests/promise). */
const SCENARIOS = TAKES_FULL_PRODUCT
  ? []
  : ['plain:', 'an ingress policy without rules', 'an egress policy without rules', 'excepted'].flatMap(
      (text) => ['--only', text],
    );

/**
 * In eBPF mode, connections belong to the sockets of pods, which containerd places in control groups of its own. In userspace
 * mode they belong to the agents' processes, as tests/agent-replaced.netns.test.ts has it on a local cluster. Agents in
 * nftables and iptables mode are replaced after the hand-back, together with the pods that answer DNS.
 */
const REPLACED_MODES = TAKES_FULL_PRODUCT ? ['userspace', 'ebpf', 'nftables'] : ['ebpf'];

/** Every mode has the ways on a local cluster; here they begin in pods that containerd made, the same in all modes. */
const FORGED_MODES = TAKES_FULL_PRODUCT ? ['nftables', 'iptables', 'userspace', 'ebpf'] : ['ebpf'];

describe('a cluster of real kubelets', { skip }, () => {
  before(async () => {
    cluster = await startRealCluster();
    await cluster.importImage(LAYOUT);
    for (const node of cluster.nodes) untouched.set(node, await snapshotNode(cluster, node));
  });
  after(() => cluster?.down());

  test('before the installation, preflight finds no problem, and no node is ready', async () => {
    for (const node of cluster.nodes) {
      const { status, out } = await cluster.fairlead(`node/${node}`, 'preflight');
      assert.equal(status, 0, out);
    }
    const remote = await cluster.fairlead(
      'workstation',
      ...['preflight', '--kubeconfig', cluster.kubeconfig, '--image', IMAGE, '-o', 'json'],
    );
    assert.equal(remote.status, 0, remote.out || remote.error);
    const { nodes } = JSON.parse(remote.out) as {
      nodes: { node: string; findings: { what: string }[] }[];
    };
    assert.deepEqual(
      nodes.map(({ node, findings }) => [node, findings.at(-1)?.what.replace(/ \(.*/, '')]),
      cluster.nodes.map((node) => [
        node,
        `the kubelet gives pods ${cluster.dnsAddress}, the cluster IP of DNS`,
      ]),
    );
    assert.doesNotMatch(await cluster.ask('get', 'namespaces'), /fairlead-preflight/);
    const ready = await cluster.ask(
      'get',
      'nodes',
      '-o',
      'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}',
    );
    assert.equal(ready, 'False False');
  });

  test('the printed manifests install everything: the nodes become ready', async () => {
    installation = await manifests(
      ...['--for', 'all', '--image', IMAGE, '--api-server', cluster.server],
      ...['--cluster-cidr', cluster.podCidr, '--dns-address', cluster.dnsAddress],
      ...['--lb-pool', `${cluster.addressOf(200)}-${cluster.addressOf(220)}`, '--commands', '--unprivileged'],
    );
    await cluster.apply(installation);
    await rollout('-n', 'kube-system', 'daemonset/fairlead');
    await rollout('-n', 'kube-system', 'deployment/fairlead-addresses');
    await cluster.ask('wait', 'node', '--all', '--for=condition=Ready', '--timeout=120s');
    await cluster.apply(webServers(IMAGE) + moreServices + clients(IMAGE));
    await rollout('deployment/web');
    await cluster.ask('wait', 'pod', '--all', '--for=condition=Ready', '--timeout=120s');
  });

  describe('traffic', () => {
    for (const { name, from, url, seenAs } of rows) {
      test(name, async () => {
        const { answers } = await assertAnswered(from, await url());
        if (!seenAs) return;
        const addresses = new Set(Object.keys(answers).map((answer) => answer.split(':')[0]));
        assert.deepEqual([...addresses], [seenAs()]);
      });
    }

    test('a Service whose network policy does not admit the client', async () => {
      const { answers } = await counts('pod/client-1', 'http://guarded', '--count', '3');
      assert.deepEqual(answers, {});
    });
  });

  test('status and explain from a workstation find no fault', async () => {
    const access = ['--kubeconfig', cluster.kubeconfig];
    const { status, out, error } = await cluster.fairlead('workstation', 'status', ...access);
    assert.equal(status, 0, out + error);
    assert.match(out, /2 nodes, .*everything is healthy/s);
    const explained = await cluster.fairlead(
      'workstation',
      ...['explain', 'client-1', 'svc/guarded', ...access],
    );
    assert.match(explained.out, /guarded/);
    assert.equal(explained.status, 1, explained.out + explained.error);
    for (const [from, to, says, code] of outsideRows()) {
      const { status: exit, ...printed } = await cluster.fairlead(
        'workstation',
        ...['explain', from, to, '--verbose', ...access],
      );
      assert.match(printed.out, says, `${from} → ${to}: ${printed.error}`);
      assert.equal(exit, code, printed.out);
    }
  });

  test('check from a workstation finds that every flow behaves as expected', async (t) => {
    const { status, out, error } = await cluster.fairlead(
      'workstation',
      ...['check', '--kubeconfig', cluster.kubeconfig, ...SCENARIOS],
    );
    assert.equal(status, 0, out + error);
    assert.match(out, /all [0-9]+ flows behaved as expected/);
    assert.match(out, /not checked: policies of the whole cluster; clients outside/);
    assert.doesNotMatch(await cluster.ask('get', 'namespaces'), /fairlead-check/);
    t.diagnostic(out.trim().split('\n').at(-1) ?? '');
  });

  test('Ctrl-C in check from a workstation removes its namespaces, and says so', async () => {
    const child = cluster.startFairlead('workstation', 'check', '--kubeconfig', cluster.kubeconfig);
    const ended = once(child, 'close');
    const signal = (name: NodeJS.Signals) => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, name);
    };
    let error = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      error += text;
    });
    child.stdout?.resume();
    try {
      const pods = ['get', 'pods', '--all-namespaces', '-o', 'jsonpath={.items[*].metadata.namespace}'];
      await eventually(
        () => cluster.ask(...pods),
        (text) => /fairlead-check-/.test(text),
      );
      signal('SIGINT');
      const [status] = await ended;
      assert.equal(status, 130, error);
    } finally {
      signal('SIGKILL');
    }
    assert.match(error, /removing the namespaces of the check\n.*interrupted\n$/s);
    assert.doesNotMatch(await cluster.ask('get', 'namespaces'), /fairlead-check/);
  });

  describe('forged packets of pods that containerd made', () => {
    let forgery: Awaited<ReturnType<typeof realForgeryScene>>;
    before(async () => {
      forgery = await realForgeryScene(cluster);
    });
    after(() => forgery?.remove());

    for (const mode of FORGED_MODES)
      test(`${mode} mode: 0 pass`, async (t) => {
        await chooseMode(mode);
        const passed = await passedWays(forgery.scene);
        t.diagnostic(`${passed.length} of ${wayCount(forgery.scene)} ways pass`);
        assert.deepEqual(
          passed.map(({ way, at, count }) => `${way}: ${count} of 3 at ${at}`),
          [],
        );
      });
  });

  for (const mode of REPLACED_MODES) {
    test(`${mode} mode: no request and no DNS query is lost while all agents are replaced`, async (t) => {
      await chooseMode(mode);
      await replaceUnderLoad(t, 'daemonset/fairlead');
    });
  }

  test("upstream's specs pass: Services, EndpointSlice, DNS, Networking", async (t) => {
    // The default mode, which the tests below expect, too.
    await chooseMode('nftables');
    const output = mkdtempSync(join(tmpdir(), 'flt-e2e-'));
    try {
      const words = ginkgoCommand({
        assets: process.env['KUBEBUILDER_ASSETS'] ?? '',
        kubeconfig: cluster.kubeconfig,
        nodes: cluster.nodes.length,
        focus: FOCUS,
        skips: [groupNamed('quick').skip],
        procs: '3',
        timeout: '270s',
        output,
      });
      const { out, error } = await cluster.run('workstation', 'env', '-C', output, ...words);
      const log = `${out.replaceAll(/[S•]{20,}/g, '')}${error}`;
      const specs = readReport(readFileSync(join(output, 'report.json'), 'utf8'));
      const passed = specs.filter(({ state }) => state === 'passed');
      t.diagnostic(`${passed.length} of ${specs.length} specs passed`);
      assert.deepEqual(
        specs.filter(({ state }) => state !== 'passed'),
        [],
        log,
      );
      assert.equal(passed.length, SPECS, log);
    } finally {
      rmSync(output, { recursive: true, force: true });
    }
  });

  describe('hand-back', () => {
    test('cleanup from a workstation is refused while agents run', async () => {
      const { status, error } = await cluster.fairlead(
        'workstation',
        ...['cleanup', '--kubeconfig', cluster.kubeconfig],
      );
      assert.notEqual(status, 0);
      assert.match(error, /an agent runs on n1, n2/);
    });

    test('without agents, Services continue in the modes of their nodes', async () => {
      const { status, out, error } = await cluster.fairlead(
        'workstation',
        ...['mode', 'iptables', '--node', 'n2', '--kubeconfig', cluster.kubeconfig],
      );
      assert.equal(status, 0, out + error);
      await cluster.remove(moreServices);
      await cluster.remove(installation);
      await agentsGone();
      await assertAnswered('outside', nodeUrl('n1', NODE_PORT));
      await assertAnswered('outside', nodeUrl('n2', NODE_PORT));
    });

    for (const node of ['n1', 'n2'] as const) {
      test(`cleanup leaves ${node} as it was before the installation`, async () => {
        const fromAfar = ['--kubeconfig', cluster.kubeconfig, '--node', node, '--image', IMAGE];
        const { status, out, error } =
          node === 'n1'
            ? await cluster.fairlead(`node/${node}`, 'cleanup')
            : await cluster.fairlead('workstation', 'cleanup', ...fromAfar);
        assert.equal(status, 0, out + error);
        assert.deepEqual(await snapshotNode(cluster, node), untouched.get(node));
        assert.doesNotMatch(await cluster.ask('get', 'namespaces'), /fairlead-cleanup/);
      });
    }

    test('then kube-proxy and another CNI plugin serve new pods', async () => {
      await cluster.startKubeProxy('iptables');
      await cluster.ask('wait', 'node', '--all', '--for=condition=Ready', '--timeout=120s');
      await cluster.ask('delete', 'pods', '-l', 'app=web', '--timeout=120s');
      await rollout('deployment/web');
      // kube-proxy programs changes later than the Deployment reports its pods.
      for (const node of cluster.nodes)
        await eventually(
          () => counts('outside', nodeUrl(node, NODE_PORT), '--count', '10'),
          ({ failures }) => Object.keys(failures).length === 0,
        );
    });
  });

  describe('kube-proxy replaced, alongside another CNI plugin', () => {
    let senders: Sender<Sent>[];
    const rules = async (node: string) => {
      const { out } = await cluster.run(`node/${node}`, 'nft', 'list', 'ruleset');
      return out;
    };

    test('the agents program all Services, then remove the rules of kube-proxy', async () => {
      await cluster.ask('create', 'service', 'clusterip', 'stale', '--tcp=80:8080');
      await cluster.ask('set', 'selector', 'service', 'stale', 'app=web');
      const stale = await clusterIP('stale');
      for (const node of cluster.nodes) await eventually(async () => (await rules(node)).includes(stale));
      senders = await Promise.all([
        send('outside', nodeUrl('n1', NODE_PORT)),
        send('outside', nodeUrl('n2', NODE_PORT)),
      ]);
      await cluster.stopKubeProxy();
      await cluster.ask('delete', 'service', 'stale');
      installation = await manifests(
        ...['--for', 'proxy-dns', '--image', IMAGE, '--api-server', cluster.server],
        ...['--cluster-cidr', cluster.podCidr, '--dns-address', cluster.dnsAddress],
      );
      await cluster.apply(installation);
      await rollout('-n', 'kube-system', 'daemonset/fairlead');
      // The nodes still have the modes that were chosen for them.
      for (const [node, theirs, ours] of [
        ['n1', /KUBE-(SVC|SERVICES|PROXY)/, /table ip fairlead /],
        ['n2', /KUBE-PROXY-CANARY/, /KUBE-CIP-ALL/],
      ] as const) {
        const found = await eventually(
          () => rules(node),
          (text) => !theirs.test(text),
        );
        assert.ok(!found.includes(stale), `${node}: ${stale}`);
        assert.match(found, ours);
      }
    });

    test('no request and no DNS query is lost while agents and the pods that answer DNS are replaced', async (t) => {
      await rollout('-n', 'kube-system', 'deployment/fairlead-dns');
      // The agents that connected the previous ones have handed over.
      await cluster.remove(clients(IMAGE));
      await cluster.apply(clients(IMAGE));
      await cluster.ask('wait', 'pod', '--all', '--for=condition=Ready', '--timeout=120s');
      await replaceUnderLoad(t, 'daemonset/fairlead', 'deployment/fairlead-dns');
    });

    test('and back: no request was lost on the way', async (t) => {
      await cluster.remove(installation);
      await agentsGone();
      await cluster.startKubeProxy('iptables');
      for (const node of cluster.nodes) {
        await eventually(async () => (await rules(node)).includes('KUBE-PROXY-CANARY'));
        const { status, out, error } = await cluster.fairlead(`node/${node}`, 'cleanup');
        assert.equal(status, 0, out + error);
        const left = await rules(node);
        assert.doesNotMatch(left, /table ip6? fairlead|KUBE-CIP-ALL/);
        assert.match(left, /KUBE-SVC/);
      }
      await assertAnswered('outside', nodeUrl('n1', NODE_PORT));
      const sent = await Promise.all(senders.map((one) => one.stop()));
      report(t, sent, []);
      for (const { failures } of sent) assert.deepEqual(failures, {});
      await cluster.ask('annotate', 'nodes', '--all', 'fairlead.dev/mode-');
      await cluster.ask('-n', 'kube-system', 'delete', 'leases', '-l', 'fairlead.dev/load-balancer');
      await cluster.ask('-n', 'kube-system', 'delete', 'lease', 'load-balancer-pools');
      assert.deepEqual(await objectsOfOurs(), []);
    });
  });
});

/** Lists the objects of the cluster in which our name is. */
async function objectsOfOurs(): Promise<string[]> {
  const kinds = 'nodes,services,endpointslices,leases,clusterroles,clusterrolebindings,roles,rolebindings';
  const text = await cluster.ask('get', kinds, '--all-namespaces', '-o', 'json');
  interface Found {
    readonly kind: string;
    readonly metadata: { readonly name: string };
    readonly status?: object;
  }
  const { items } = JSON.parse(text) as { readonly items: readonly Found[] };
  // Our image stays in the caches of the container runtimes.
  const isOurs = ({ status, ...rest }: Found) =>
    JSON.stringify([rest, { ...status, images: [] }]).includes('fairlead');
  return items.filter(isOurs).map(({ kind, metadata }) => `${kind} ${metadata.name}`);
}

function report(t: TestContext, sent: readonly Sent[], asked: readonly Asked[]): void {
  const total = (numbers: readonly number[]) => numbers.reduce((sum, one) => sum + one, 0);
  const failed = total(sent.flatMap(({ failures }) => Object.values(failures)));
  const slow = sent.toSorted((a, b) => b.slowest - a.slowest)[0];
  const slowest = (results: readonly { readonly slowest: number }[]) =>
    Math.max(...results.map((one) => one.slowest));
  t.diagnostic(
    `${total(sent.map((one) => one.sent))} requests, ${failed} failed, slowest ${slowest(sent)} ms (${slow?.slowestPhase})`,
  );
  if (asked.length === 0) return;
  const lost = total(asked.map((one) => one.lost));
  t.diagnostic(
    `${total(asked.map((one) => one.sent))} DNS queries, ${lost} lost, slowest ${slowest(asked)} ms`,
  );
}
