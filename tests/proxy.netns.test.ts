import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { availableModes } from '../src/agent/dataplanes.ts';
import type { Mode } from '../src/dataplane/dataplane.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import {
  type Cluster,
  freeLocalPort,
  HELLO,
  runFairlead,
  spawnFairlead,
  startCluster,
} from './testing/cluster.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

const MODES = availableModes().filter((mode) => mode !== 'ipvs');

/**
 * Whether a mode has all tests: without the full product, the one that forwards in a process of its own, and a mode that
 * forwards in the kernel. Opened and published ports connect to Services like any process of the node; the check of flows
 * and the tests of the modes' rooms have Services without endpoints in each mode.
 */
const isWhole = (mode: Mode) => TAKES_FULL_PRODUCT || mode === 'userspace' || mode === 'nftables';

const published = freeLocalPort();
let cluster: Cluster;
let opened: OpenedPort;
before(async () => {
  const options = ['--nodes', '2', '--ip-family', 'dual', '-p', `${published}:80/svc/hello`];
  cluster = await startCluster([...options, '-f', HELLO]);
  opened = await openPort('svc/hello:http');
});
after(async () => {
  await opened?.close();
  await cluster?.down();
});

interface OpenedPort {
  readonly port: number;
  /** What the command wrote to standard error. */
  errors(): string;
  /** Ends the command as Ctrl-C does; resolves to its exit status. */
  close(): Promise<number | null>;
}

/** Runs `fairlead open` in the background. */
async function openPort(service: string): Promise<OpenedPort> {
  const open = spawnFairlead(cluster.stateRoot, ['open', service, '--name', cluster.name]);
  const ended = new Promise<number | null>((resolve) => open.once('close', resolve));
  const texts = { out: '', err: '' };
  open.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    texts.out += chunk;
  });
  open.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    texts.err += chunk;
  });
  const line = await eventually(
    () => texts.out,
    (out) => out.includes('\n'),
  );
  const [, port] = /^127\.0\.0\.1:(\d+) → svc\/hello:80\n$/.exec(line) ?? [];
  assert.ok(port, line);
  return {
    port: Number(port),
    errors: () => texts.err,
    close() {
      open.kill('SIGINT');
      return ended;
    },
  };
}

/** Requests a port of the machine's loopback; returns the answers and failures. */
async function requestPort(host: string, port: number, count: number) {
  const words = ['request', `http://${host}:${port}`, '--count', String(count), '-o', 'json'];
  const { out } = await runFairlead(cluster.stateRoot, words);
  return JSON.parse(out) as { answers: Record<string, number>; failures: Record<string, number> };
}

const onNode = (node: string, ...words: string[]) =>
  execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-${node}`, ...words], { encoding: 'utf8' });

for (const mode of MODES) {
  describe(mode, () => {
    before(async () => {
      assert.equal((await cluster.fairlead('mode', mode)).status, 0);
    });

    test('flows are shown as they happen, with the names of pods and Services', async () => {
      let over = false;
      const flows = cluster
        .fairlead(
          'flows',
          '--service',
          'hello',
          '--pod',
          'client',
          '--kind',
          'established',
          '--count',
          '1',
          '-o',
          'json',
        )
        .finally(() => {
          over = true;
        });
      // The command may not have started yet: until then no flow is watched.
      while (!over) await cluster.request('client', 'http://hello');
      const { status, out, error } = await flows;
      assert.equal(status, 0, error);
      const flow = JSON.parse(out);
      const pods = await cluster.pods('app=hello');
      assert.equal(flow.service.name, 'default/hello:http');
      assert.equal(flow.client.name, 'default/client');
      assert.ok(
        pods.some(({ name }) => flow.endpoint.name === `default/${name}`),
        flow.endpoint.name,
      );
      assert.ok(flow.micros > 0);
    });

    // tests/promise rolls out under load in each mode.
    if (!isWhole(mode)) return;

    test('a rolling update under load loses no request', async () => {
      const loads = [
        cluster.load('client', 'http://hello'),
        cluster.load('outside', `http://${cluster.state().nodes[0]?.addresses[0]}:30080`),
      ];
      await cluster.ask('rollout', 'restart', 'deployment/hello');
      await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
      for (const load of loads) {
        const counts = await load.stop();
        assert.deepEqual(counts.failures, {});
        assert.ok(counts.count >= 300);
      }
    });

    test('opened and published ports of the machine reach every endpoint of the Service', async () => {
      const names = (await cluster.pods('app=hello')).map(({ name }) => name).sort();
      for (const port of [opened.port, published]) {
        for (const host of ['127.0.0.1', '[::1]']) {
          // The roll-out ends once its pods are ready, which may be before the node's rules have the last of them.
          await eventually(
            async () => {
              const { answers, failures } = await requestPort(host, port, 60);
              assert.deepEqual(failures, {});
              return Object.keys(answers).sort();
            },
            (answered) => isDeepStrictEqual(answered, names),
          );
        }
      }
    });

    test('a Service without pods rejects at once, and answers at once when pods return, over TCP and UDP', async () => {
      await cluster.ask('scale', 'deployment/hello', '--replicas=0');
      const endpoints = () =>
        cluster.ask(
          'get',
          'endpointslices',
          '-l',
          'kubernetes.io/service-name=hello',
          '-o',
          'jsonpath={.items[*].endpoints[*].addresses[0]}',
        );
      await eventually(endpoints, (all) => all.trim() === '');
      await eventually(
        () => cluster.request('client', 'http://hello'),
        ({ failures }) => Object.keys(failures).some((one) => one.includes('ECONNREFUSED')),
      );
      const earlier = opened.errors().length;
      const { failures: closed } = await requestPort('127.0.0.1', opened.port, 1);
      assert.equal(Object.keys(closed).length, 1);
      await eventually(
        () => opened.errors().slice(earlier),
        (all) => all.includes('Service default/hello has no ready endpoints'),
      );
      await eventually(
        () => cluster.request('client', 'udp://hello:80'),
        ({ failures }) => Object.keys(failures).some((one) => one.includes('ECONNREFUSED')),
      );
      await cluster.ask('scale', 'deployment/hello', '--replicas=3');
      await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
      for (const url of ['http://hello', 'udp://hello:80']) {
        await eventually(
          () => cluster.request('client', url, '--count', '60'),
          ({ answers, failures }) => Object.keys(answers).length === 3 && Object.keys(failures).length === 0,
        );
      }
    });
  });
}

test('open refuses a Service that does not exist, and suggests a similar one', async () => {
  const { status, error } = await cluster.fairlead('open', 'svc/helo');
  assert.equal(status, 1);
  assert.equal(error, 'fairlead: no such Service: default/helo\n  try: did you mean svc/hello?\n');
});

test('Ctrl-C of open closes its port', async () => {
  assert.equal(await opened.close(), 0);
  const { failures } = await requestPort('127.0.0.1', opened.port, 1);
  assert.match(Object.keys(failures).join(), /ECONNREFUSED/);
});

test('up replaces the published ports of a running cluster, and keeps connections of the others', async () => {
  const second = freeLocalPort();
  const connection = connect({ port: published, host: '127.0.0.1' });
  await once(connection, 'connect');
  const ask = async (...ports: readonly number[]) => {
    const up = await cluster.fairlead(
      ...['up', '--detach'],
      ...ports.flatMap((port) => ['-p', `${port}:80/svc/hello`]),
      ...(ports.length === 0 ? ['-p', 'none'] : []),
    );
    assert.equal(up.status, 0, up.error);
  };
  await ask(published, second);
  assert.deepEqual((await requestPort('127.0.0.1', second, 10)).failures, {});
  connection.write('GET /hostname HTTP/1.0\r\n\r\n');
  assert.match(await text(connection), /^HTTP\/1\.[01] 200 /);
  await ask(second);
  assert.match(Object.keys((await requestPort('127.0.0.1', published, 1)).failures).join(), /ECONNREFUSED/);
  assert.deepEqual((await requestPort('127.0.0.1', second, 10)).failures, {});
  await ask();
  assert.match(Object.keys((await requestPort('127.0.0.1', second, 1)).failures).join(), /ECONNREFUSED/);
  const { out } = await cluster.fairlead('status');
  assert.doesNotMatch(out, /published/i);
});

test('healthCheckNodePort tells load balancers which nodes have pods of the Service', async () => {
  await cluster.ask('scale', 'deployment/hello', '--replicas=1');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
  await eventually(
    () => cluster.pods('app=hello'),
    (pods) => pods.length === 1,
  );
  await cluster.apply(`
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: hello}
  ports: [{port: 80, targetPort: http}]
`);
  const port = await cluster.ask('get', 'service', 'balanced', '-o', 'jsonpath={.spec.healthCheckNodePort}');
  const [pod] = await cluster.pods('app=hello');
  const ask = (address: string) =>
    execFileSync(
      'ip',
      [
        'netns',
        'exec',
        `fl-${cluster.name}-outside`,
        'curl',
        '-sg',
        '-i',
        '-m',
        '5',
        `http://${address.includes(':') ? `[${address}]` : address}:${port}/`,
      ],
      { encoding: 'utf8' },
    );
  for (const node of cluster.state().nodes) {
    for (const address of node.addresses) {
      const here = node.name === pod?.node;
      const answer = await eventually(
        () => {
          try {
            return ask(address);
          } catch (error) {
            return String(error);
          }
        },
        (text) => text.startsWith(here ? 'HTTP/1.1 200' : 'HTTP/1.1 503'),
      );
      assert.match(answer, new RegExp(`x-load-balancing-endpoint-weight: ${here ? 1 : 0}`, 'i'));
      assert.match(
        answer,
        new RegExp(
          `"service":\\{"namespace":"default","name":"balanced"\\},"localEndpoints":${here ? 1 : 0},"serviceProxyHealthy":true`,
        ),
      );
    }
  }
  await cluster.ask('delete', 'service', 'balanced');
  await eventually(
    () => {
      try {
        return ask(cluster.state().nodes[0]?.addresses[0] ?? '');
      } catch {
        return 'no listener';
      }
    },
    (text) => text === 'no listener',
  );
  await cluster.ask('scale', 'deployment/hello', '--replicas=3');
  await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
});

test('deleted rules are restored within a second, with an event on the node', async () => {
  assert.equal((await cluster.fairlead('mode', 'iptables')).status, 0);
  try {
    const rules = () =>
      onNode('node-1', 'iptables-save', '-t', 'nat')
        .split('\n')
        .filter((line) => line.startsWith('-A'));
    const before = await settled(rules);
    onNode('node-1', 'iptables', '-t', 'nat', '-F', 'KUBE-SERVICES');
    await eventually(rules, (now) => now.join() === before.join(), 3000);
    const words = ['events', '--field-selector', 'involvedObject.name=node-1'];
    await eventually(
      () => cluster.ask('get', ...words, '-o', 'jsonpath={.items[*].reason}'),
      (text) => text.includes('ServiceRulesChanged'),
    );
  } finally {
    assert.equal((await cluster.fairlead('mode', 'nftables')).status, 0);
  }
});

test('an owned nf_tables table rejects changes by other programs', () => {
  assert.throws(() => onNode('node-1', 'nft', 'flush', 'table', 'ip', 'fairlead'), /Operation not permitted/);
});

test('/healthz, /livez, /metrics and /proxyMode answer like those of kube-proxy', async () => {
  const get = (port: number, path: string) =>
    onNode('node-1', 'curl', '-s', '-m', '5', `http://127.0.0.1:${port}${path}`);
  await cluster.request('node/node-1', 'http://hello');
  assert.match(get(10256, '/healthz'), /"nodeEligible":true/);
  assert.match(get(10256, '/livez'), /"lastUpdated":"20/);
  assert.equal(get(10249, '/proxyMode'), 'nftables');
  const metrics = get(10249, '/metrics');
  for (const name of [
    'kubeproxy_sync_proxy_rules_duration_seconds_count',
    'kubeproxy_network_programming_duration_seconds_count',
    'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
    'kubeproxy_proxy_healthz_total',
    'coredns_dns_requests_total',
    'fairlead_conntrack_limit',
    'fairlead_service_connections_total{namespace="default",service="hello"} [1-9]',
    'fairlead_service_connections_counted{mode="nftables"} 1',
    'fairlead_pod_network_used_addresses{network="10',
    'fairlead_certificate_not_after_seconds{certificate="client"}',
  ]) {
    assert.match(metrics, new RegExp(`^${name}`, 'm'));
  }
});

test('two Services request the same address: the older keeps it, the younger gets an event', async () => {
  const service = (name: string) => `
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec: {selector: {app: hello}, ports: [{port: 80, targetPort: http}], externalIPs: [192.0.2.77]}
`;
  await cluster.apply(service('older'));
  await new Promise((resolve) => setTimeout(resolve, 1100));
  await cluster.apply(service('younger'));
  const told = await eventually(
    () =>
      cluster.ask(
        'get',
        'events',
        '--field-selector',
        'involvedObject.name=younger',
        '-o',
        'jsonpath={.items[*].message}',
      ),
    (text) => text !== '',
  );
  assert.match(told, /older/);
  await cluster.ask('delete', 'service', 'older', 'younger');
});

test('the proxy continues with any contents of a slice', async () => {
  await cluster.apply(`
apiVersion: v1
kind: Service
metadata: {name: odd}
spec: {ports: [{name: http, port: 80}, {name: other, port: 81}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: odd-1, labels: {kubernetes.io/service-name: odd}}
addressType: IPv4
ports: [{name: http, port: 8080}, {port: 9}]
endpoints: [{addresses: [10.244.0.250]}, {addresses: [10.244.0.250]}, {addresses: [10.244.0.251], conditions: {ready: false}}]
`);
  const many = Array.from({ length: 1000 }, (_, n) => `  - {addresses: [10.245.${n >> 8}.${n & 255}]}`);
  for (let part = 0; part < 5; part++) {
    await cluster.apply(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: odd-many-${part}, labels: {kubernetes.io/service-name: odd}}
addressType: IPv4
ports: [{name: other, port: 8080}]
endpoints:
${many.map((line) => line.replace('10.245.', `10.${250 + part - 4}.`)).join('\n')}
`);
  }
  const counts = await cluster.request('client', 'http://hello', '--count', '30');
  assert.deepEqual(counts.failures, {});
  await eventually(
    () => cluster.fairlead('explain', 'client', 'svc/default/odd:81', '-o', 'json'),
    ({ out }) => (JSON.parse(out || '{}').endpoints ?? []).length === 5000,
  );
  await cluster.ask('delete', 'service', 'odd');
  assert.equal((await cluster.fairlead('status')).status, 0);
});

/** Resolves to a value that has stayed the same for half a second. */
async function settled<T>(read: () => T): Promise<T> {
  for (let last = read(); ; ) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    const now = read();
    if (JSON.stringify(now) === JSON.stringify(last)) return now;
    last = now;
  }
}
