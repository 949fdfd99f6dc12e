import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TracedFlow } from '../../src/cluster/trace-flow.ts';
import { ConntrackConnection } from '../../src/kernel/conntrack/connection.ts';
import { FLOW_STATUS } from '../../src/kernel/conntrack/flow.ts';
import { ADDRESS_ANNOUNCED } from '../../src/kube/load-balancer.ts';
import type { Service } from '../../src/kube/types.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import type { Counts, RunningPod } from './cluster.ts';
import { askAsMusl, askNames } from './name-questions.ts';
import type { PromiseScene } from './promise-scene.ts';
import { startWaitingClient } from './waiting-client.ts';

const ZONE = 'default.svc.cluster.local';
const PRINT_METRICS = `fetch('http://127.0.0.1:10249/metrics').then((r) => r.text()).then(console.log)`;

const sorted = (texts: readonly string[]) => [...texts].sort().join(' ');
const urlAt = (address: string, port = 80) =>
  `http://${address.includes(':') ? `[${address}]` : address}:${port}`;

/** Names of Services, pods and nothing, and that their packets are not translated. */
export function testNames(scene: PromiseScene): void {
  test('names of Services, of a headless one and its pods, of an alias, and names that do not exist', async () => {
    const { cluster } = scene;
    const hello = await scene.clusterIPs('hello');
    const pods = await cluster.pods('app=hello');
    const [pod] = pods;
    const [v4 = '', v6 = ''] = pod?.ips ?? [];
    const name = `${v4.replaceAll('.', '-')}.headless.${ZONE}`;
    const wanted: Readonly<Record<string, string>> = {
      'lookup hello': sorted(hello),
      'lookup hello.default': sorted(hello),
      [`lookup hello.${ZONE}.`]: sorted(hello),
      'lookup headless': sorted(pods.flatMap(({ ips }) => ips)),
      [`A ${name}`]: v4,
      [`PTR ${hello[0]}`]: `hello.${ZONE}`,
      [`PTR ${hello[1]}`]: `hello.${ZONE}`,
      [`SRV _http._tcp.hello.${ZONE}`]: `hello.${ZONE} 80 0 100`,
      [`AAAA ${v6.replaceAll(':', '-')}.headless.${ZONE}`]: v6,
      'lookup alias': sorted(hello),
      [`CNAME alias.${ZONE}`]: `hello.${ZONE}`,
      [`lookup nothing.${ZONE}.`]: 'ENOTFOUND',
      [`MX hello.${ZONE}`]: 'ENODATA',
    };
    for (const place of ['client', 'node/node-2']) {
      await eventually(
        async () => {
          const answers = await askNames(cluster, place, Object.keys(wanted));
          return Object.keys(wanted).flatMap((question) =>
            // The order of fields in c-ares' SRV records varies.
            sorted(answers[question]?.split(' ') ?? []) === sorted(wanted[question]?.split(' ') ?? [])
              ? []
              : [`${question} from ${place}: ${answers[question]}, not ${wanted[question]}`],
          );
        },
        (wrong) => wrong.length === 0,
        scene.patienceMs,
      );
    }
  });

  test('no address is translated between a pod and its name server', async () => {
    const { cluster } = scene;
    assert.equal(await askAsMusl(cluster, 'client', `hello.${ZONE}`), 0);
    const [client] = await cluster.pods('app=client');
    const table = new ConntrackConnection(`fl-${cluster.name}-${client?.node}`);
    try {
      for (const family of ['ipv4', 'ipv6'] as const) {
        const flows = table.list(family, { protocol: 17, destinationPort: 53 });
        if (family === 'ipv4') assert.ok(flows.length > 0);
        const translated = flows.filter(
          ({ status }) => (status & (FLOW_STATUS.destinationNat | FLOW_STATUS.sourceNat)) !== 0,
        );
        assert.deepEqual(translated, []);
      }
    } finally {
      table.close();
    }
  });
}

/**
 * The server is bound to no address, so that the kernel chooses the source of its answers; the clients' sockets are connected
 * to the address that they ask, and get answers from no other one.
 */
export function testDatagramsOfNodes(scene: PromiseScene): void {
  test('a server of datagrams in the host network answers pods of its node and of another one', async () => {
    const { cluster } = scene;
    const node = cluster.state().nodes[0]?.addresses ?? [];
    const ips = await scene.clusterIPs('on-host');
    const urls = [
      ...[...ips].map((address) => urlAt(address)),
      ...node.flatMap((address) => [urlAt(address, 8086), urlAt(address, 30083)]),
    ].map((url) => url.replace('http:', 'udp:'));
    assert.equal(urls.length, 6);
    const failures: string[] = [];
    for (const place of ['near', 'far'])
      for (const url of urls) {
        const words = ['--count', '2', '--concurrency', '2', '--timeout', '15000'];
        const asked = await cluster.request(place, url, ...words);
        if (asked.answers['node-1'] !== 2) failures.push(`${place} → ${url}: ${JSON.stringify(asked)}`);
      }
    assert.deepEqual(failures, []);
  });
}

/** Packets that are traced contradict no step of `explain`. */
export function testTrace(scene: PromiseScene): void {
  for (const [from, to, family] of [
    ['client', 'svc/hello', '-4'],
    ['outside', 'node/node-1:30080', '-6'],
    ['client', 'svc/hello:81', '-4'],
  ] as const) {
    test(`explain agrees with the traced packet of ${from} → ${to}`, async () => {
      const { out, error } = await scene.cluster.fairlead('trace', from, to, family, '-o', 'json');
      assert.notEqual(out, '', error);
      const [{ trace, agreement }, ...more] = [JSON.parse(out)].flat() as [TracedFlow, ...TracedFlow[]];
      assert.deepEqual(more, []);
      assert.equal(trace?.answer.kind, to.endsWith(':81') ? 'refused' : 'answered', out);
      assert.equal(agreement?.isVerdictRight, true, out);
      assert.deepEqual(
        agreement.steps.filter(({ isRight }) => isRight === false),
        [],
      );
    });
  }
}

export function testLoadBalancer(scene: PromiseScene): void {
  test('the addresses of a load balancer are announced, and answer outside, nodes and pods', async () => {
    const { cluster } = scene;
    const service = await eventually(
      async () => JSON.parse(await cluster.ask('get', 'service', 'balanced', '-o', 'json')) as Service,
      ({ status }) =>
        status?.conditions?.some((one) => one.type === ADDRESS_ANNOUNCED && one.status === 'True') === true,
      scene.patienceMs,
    );
    const addresses = (service.status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) => ip ?? []);
    assert.equal(addresses.length, 2);
    const { out } = await cluster.fairlead('status');
    for (const address of addresses) {
      assert.match(out, new RegExp(`^${address} +default/balanced +node-[12]$`, 'm'));
      for (const place of ['outside', 'node/node-1', 'node/node-2', 'client']) {
        // The timeout and the concurrency.
        const words = ['--count', '30', ...scene.load.slice(0, 4)];
        const { failures, answers } = await cluster.request(place, urlAt(address), ...words);
        assert.deepEqual([place, failures, Object.keys(answers).length], [place, {}, 3]);
      }
    }
  });
}

export function testRollOut(scene: PromiseScene): void {
  test('a roll-out, scaling and a deletion under load lose no request while all pods change', async () => {
    const { cluster } = scene;
    const [node = '', node6 = ''] = cluster.state().nodes[0]?.addresses ?? [];
    const rolledOut = () =>
      cluster.ask('rollout', 'status', 'deployment/rolling', `--timeout=${scene.patienceMs / 1000}s`);
    const names = async () => (await cluster.pods('app=rolling')).map(({ name }) => name);
    const loads = [
      ['client', 'http://rolling'],
      ['client', 'udp://rolling:80'],
      ['outside', urlAt(node, 30082)],
      ['outside', urlAt(node6, 30082)],
    ].map(([place = '', url = '']) => ({ url, load: cluster.load(place, url, ...scene.load) }));
    const earlier = await names();
    await cluster.ask('rollout', 'restart', 'deployment/rolling');
    await rolledOut();
    await cluster.ask('scale', 'deployment/rolling', '--replicas=3');
    await rolledOut();
    await cluster.ask('delete', 'pod', (await names())[0] ?? '', '--wait=false');
    await cluster.ask('scale', 'deployment/rolling', '--replicas=2');
    await rolledOut();
    for (const { url, load } of loads) {
      const { count, failures } = await load.stop();
      assert.deepEqual([url, failures], [url, {}]);
      assert.ok(count >= 100, `${count} requests`);
    }
    const later = await names();
    assert.deepEqual(
      later.filter((name) => earlier.includes(name)),
      [],
    );
  });
}

export function testFailover(scene: PromiseScene): void {
  test('one endpoint becomes unreachable, another one stops: connections to them reach others', async () => {
    const { cluster } = scene;
    const ask = (place: string, url: string, count: number) =>
      cluster.request(
        ...([place, url, '-4', '--count', String(count), '--timeout', '20000'] as const),
        ...['--concurrency', '8'],
      );
    const inPod = async (pod: RunningPod, ...command: string[]) => {
      const { status, error } = await cluster.fairlead('exec', pod.name, '--', ...command);
      assert.equal(status, 0, error);
    };
    const countBefore = await ejections(scene);
    const pods = await cluster.pods('app=fragile');
    const [gone, ended] = pods as [RunningPod, RunningPod];
    const node = cluster.state().nodes[0]?.addresses[0] ?? '';
    const waiting = await startWaitingClient(cluster, gone.name, node, 30081);
    try {
      await inPod(gone, 'ip', 'link', 'set', 'eth0', 'down');
      const during = await askUntilEjected(scene, gone, () => ask('client', 'http://fragile', 100));
      assert.deepEqual(failuresOf(during), {});
      const without = await ask('client', 'http://fragile', 60);
      assert.deepEqual(without.failures, {});
      assert.ok(!(gone.name in without.answers), JSON.stringify(without.answers));

      await inPod(ended, 'sh', '-c', 'kill $(cat /tmp/server)');
      await askUntilEjected(scene, ended, () => ask('outside', urlAt(node, 30081), 100));
      // The event reports the decision, which a busy machine programs later.
      await eventually(
        async () => (await ask('outside', urlAt(node, 30081), 60)).failures,
        (failures) => Object.keys(failures).length === 0,
        scene.patienceMs,
      );
      assert.deepEqual((await ask('outside', urlAt(node, 30081), 60)).failures, {});
      assert.ok((await ejections(scene)) >= countBefore + 2, 'each is counted');
      await cluster.ask('delete', 'pod', gone.name, ended.name, '--wait=false');
      assert.equal(await waiting.end, 'ECONNRESET');
    } finally {
      waiting.stop();
    }
    const timeout = `--timeout=${scene.patienceMs / 1000}s`;
    await cluster.ask('rollout', 'status', 'deployment/fragile', timeout);
  });
}

/** Sends requests until a node has ejected the endpoint. Returns all requests. */
async function askUntilEjected(
  { cluster, patienceMs }: PromiseScene,
  pod: RunningPod,
  ask: () => Promise<Counts>,
): Promise<Counts[]> {
  const all: Counts[] = [];
  await eventually(
    async () => {
      all.push(await ask());
      return await cluster.ask('get', 'events', '--field-selector', 'reason=EndpointEjected');
    },
    (events) => events.includes(`${pod.ips[0]}:8080/TCP`),
    patienceMs,
  );
  return all;
}

const failuresOf = (all: readonly Counts[]) => Object.assign({}, ...all.map(({ failures }) => failures));

/** Returns the total number of endpoints that nodes have ejected. */
async function ejections({ cluster }: PromiseScene): Promise<number> {
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
