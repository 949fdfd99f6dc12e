import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Service } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { type Answers, askAsMusl, askNames } from './testing/name-questions.ts';

const READY = 'httpGet: {path: /hostname, port: 8080}';
const pods = (kind: string, name: string, replicas: number, probe: string) => `
apiVersion: apps/v1
kind: ${kind}
metadata: {name: ${name}}
spec:
  replicas: ${replicas}
  selector: {matchLabels: {app: ${name}}}
  ${kind === 'StatefulSet' ? `serviceName: ${name}\n  podManagementPolicy: Parallel` : ''}
  template:
    metadata: {labels: {app: ${name}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: echo
        image: fairlead
        command: [fairlead, echo, --port=8080]
        readinessProbe: {${probe}, periodSeconds: 1}
---`;
const headless = (name: string, app: string, more = '') => `
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec:
  clusterIP: None
  ipFamilyPolicy: RequireDualStack
  selector: {app: ${app}}
  ports: [{name: http, port: 80, targetPort: 8080}]
  ${more}
---`;
const SCENE = [
  pods('StatefulSet', 'db', 2, READY),
  pods('StatefulSet', 'cold', 2, 'tcpSocket: {port: 9}'),
  pods('Deployment', 'web', 2, READY),
  headless('db', 'db'),
  headless('cold', 'cold', 'publishNotReadyAddresses: true'),
  headless('warm', 'cold'),
  `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: outer}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outer-1, labels: {kubernetes.io/service-name: outer}}
addressType: IPv4
endpoints:
- {addresses: [192.0.2.7], hostname: primary}
- {addresses: [192.0.2.8]}
- {addresses: [192.0.2.9], conditions: {ready: false}}
ports: [{name: sql, port: 5432}]
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: web.default.svc.cluster.local}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeSelector: {kubernetes.io/hostname: node-1}
  terminationGracePeriodSeconds: 0
  containers: [{name: shell, image: fairlead, command: [sleep, infinity]}]
`,
].join('\n');

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '--ip-family', 'dual']);
  await cluster.apply(SCENE);
  await cluster.ask('rollout', 'status', 'deployment/web', '--timeout=120s');
  await cluster.ask('rollout', 'status', 'statefulset/db', '--timeout=120s');
  await cluster.ask('wait', 'pod/client', '--for=condition=Ready', '--timeout=120s');
});
after(() => cluster?.down());

const service = async (name: string, namespace = 'default') =>
  JSON.parse(await cluster.ask('get', 'service', name, '-n', namespace, '-o', 'json')) as Service;
const ask = (...questions: string[]) => askNames(cluster, 'client', questions);
const untilAsked = (question: string, answer: string | RegExp) =>
  eventually(
    async () => (await ask(question))[question] ?? '',
    (found) => (typeof answer === 'string' ? found === answer : answer.test(found)),
  );
const sorted = (texts: readonly string[]) => [...texts].sort().join(' ');
const addressesOf = async (app: string) =>
  Object.fromEntries((await cluster.pods(`app=${app}`)).map(({ name, ips }) => [name, ips]));

describe('names resolved by a pod’s resolver', () => {
  test('resolv.conf lists the pod’s node first, then others', async () => {
    const { out } = await cluster.fairlead('exec', 'client', '--', 'cat', '/etc/resolv.conf');
    assert.match(
      out,
      /^search default\.svc\.cluster\.local svc\.cluster\.local cluster\.local.*\nnameserver 10\.96\.0\.10\nnameserver 10\.244\.\d+\.1\n/,
    );
    assert.match(out, /options ndots:5/);
  });

  test('a namespace without Services exists', async () => {
    assert.match((await ask('A empty.svc.cluster.local'))['A empty.svc.cluster.local'] ?? '', /^ENOTFOUND/);
    await cluster.ask('create', 'namespace', 'empty');
    await untilAsked('A empty.svc.cluster.local', /^ENODATA/);
    await cluster.ask('delete', 'namespace', 'empty');
    await untilAsked('A empty.svc.cluster.local', /^ENOTFOUND/);
  });

  test('Services, headless ones with and without selector, aliases', async () => {
    const web = (await service('web')).spec?.clusterIPs ?? [];
    const db = await addressesOf('db');
    const cold = await addressesOf('cold');
    const both = (one: Record<string, readonly string[]>) => Object.values(one).flat();
    const [v4 = '', v6 = ''] = db['db-0'] ?? [];
    const zone = 'default.svc.cluster.local';
    const wanted: Answers = {
      'lookup web': sorted(web),
      'lookup web.default': sorted(web),
      [`lookup web.${zone}.`]: sorted(web),
      'lookup kubernetes': ((await service('kubernetes')).spec?.clusterIPs ?? []).join(' '),
      'lookup db': sorted(both(db)),
      'lookup db-0.db': sorted(db['db-0'] ?? []),
      [`A db-1.db.${zone}`]: db['db-1']?.[0] ?? '',
      [`SRV _http._tcp.db.${zone}`]: sorted(['db-0', 'db-1'].map((name) => `${name}.db.${zone} 8080 0 50`)),
      [`SRV _http._tcp.web.${zone}`]: `web.${zone} 80 0 100`,
      [`PTR ${v4}`]: `db-0.db.${zone}`,
      [`PTR ${v6}`]: `db-0.db.${zone}`,
      [`PTR ${web[0]}`]: `web.${zone}`,
      'lookup cold': sorted(both(cold)),
      'lookup cold-1.cold': sorted(cold['cold-1'] ?? []),
      'lookup warm.default.svc.cluster.local.': 'ENOTFOUND',
      'lookup outer': '192.0.2.7 192.0.2.8',
      'lookup primary.outer': '192.0.2.7',
      [`A 192-0-2-8.outer.${zone}`]: '192.0.2.8',
      'lookup alias': sorted(web),
      [`CNAME alias.${zone}`]: `web.${zone}`,
      'lookup nothing.default.svc.cluster.local.': 'ENOTFOUND',
      [`MX web.${zone}`]: 'ENODATA',
    };
    await eventually(
      async () => {
        const answers = await ask(...Object.keys(wanted));
        return Object.keys(wanted).flatMap((question) =>
          // The order of fields in c-ares' SRV records varies.
          answers[question]?.split(' ').sort().join() === wanted[question]?.split(' ').sort().join()
            ? []
            : [`${question}: ${answers[question]}, not ${wanted[question]}`],
        );
      },
      (wrong) => wrong.length === 0,
    );
  });

  test('a StatefulSet is scaled up and down', async () => {
    await cluster.ask('scale', 'statefulset/db', '--replicas=3');
    await untilAsked('lookup db-2.db', /^10\.244\.\d+\.\d+ fd00/);
    await cluster.ask('scale', 'statefulset/db', '--replicas=2');
    await untilAsked('lookup db-2.db.default.svc.cluster.local.', 'ENOTFOUND');
  });

  test('a Service changes its type and back', async () => {
    const web = (await service('web')).spec?.clusterIPs ?? [];
    const patch = (spec: object) =>
      cluster.ask('patch', 'service', 'alias', '--type=merge', '-p', JSON.stringify({ spec }));
    await patch({
      type: 'ClusterIP',
      externalName: null,
      selector: { app: 'web' },
      ports: [{ port: 80, targetPort: 8080 }],
    });
    const own = (await service('alias')).spec?.clusterIP ?? '';
    await untilAsked('lookup alias', own);
    await patch({
      type: 'ExternalName',
      externalName: 'db.default.svc.cluster.local',
      clusterIP: null,
      clusterIPs: null,
    });
    await untilAsked('lookup alias', sorted(Object.values(await addressesOf('db')).flat()));
    await patch({ externalName: 'web.default.svc.cluster.local' });
    await untilAsked('lookup alias', sorted(web));
  });

  test('getaddrinfo has both families at once, repeatedly (glibc queries A and AAAA from one socket)', async () => {
    const web = sorted((await service('web')).spec?.clusterIPs ?? []);
    // Different spellings, so that each query is distinct.
    const spelt = (i: number) =>
      [...'webserv']
        .map((letter, bit) => (i & (1 << bit) ? letter.toUpperCase() : letter))
        .slice(0, 3)
        .join('');
    const questions = Array.from(
      { length: 128 },
      (_, i) =>
        `lookup ${spelt(i)}.${i & 8 ? 'default' : 'Default'}${i & 16 ? '.svc' : ''}${i & 32 ? '.cluster.local' : ''}`,
    ).filter((question) => !/ult\.cluster/.test(question));
    const answers = await ask(...questions);
    for (const question of questions) assert.equal(answers[question], web, question);
  });

  test('two queries from one socket are both answered (musl sends them to every server at once)', async () => {
    assert.equal(await askAsMusl(cluster, 'client', 'web.default.svc.cluster.local'), 0);
  });
});

async function icmpCounters(node: string): Promise<Map<string, number>> {
  const { out } = await cluster.fairlead('exec', `node/${node}`, '--', 'cat', '/proc/net/snmp');
  const [fields = [], values = []] = [...out.matchAll(/^Icmp: (.*)/gm)].map((found) =>
    (found[1] ?? '').split(' '),
  );
  return new Map(fields.map((field, i) => [field, Number(values[i])]));
}

describe('the name servers', () => {
  test("have metrics with CoreDNS's names", async () => {
    const script = `fetch('http://127.0.0.1:10249/metrics').then((r) => r.text()).then((t) => console.log(t.match(/^coredns.*/gm).join('\\n')))`;
    const { out } = await cluster.fairlead('exec', 'node/node-1', '--', process.execPath, '-e', script);
    assert.match(out, /coredns_dns_requests_total\{[^}]*zone="cluster\.local\."[^}]*type="AAAA"\} [1-9]/);
    assert.match(out, /coredns_dns_responses_total\{[^}]*rcode="NXDOMAIN"[^}]*\} [1-9]/);
  });

  test('names resolve on a node whose agent is dead, and its pods use their own node again afterwards', async () => {
    const web = sorted((await service('web')).spec?.clusterIPs ?? []);
    const agent = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
    assert.ok(agent);
    await cluster.stopSupervisor();
    process.kill(agent.pid, 'SIGKILL');
    try {
      // More concurrent queries than the kernel rejects for one pod by default.
      const names = ['web', 'Web', 'wEb', 'weB', 'WEb', 'WeB', 'wEB', 'WEB'].map((name) => `lookup ${name}`);
      for (let i = 0; i < 3; i++) {
        const answers = await ask(...names);
        for (const [name, answer] of Object.entries(answers)) assert.equal(answer, web, name);
      }
      const unknown = 'lookup nothing.default.svc.cluster.local.';
      assert.equal((await ask(unknown))[unknown], 'ENOTFOUND');
      // While no agent runs at all, queries are rejected: pods do not wait for the timeout of their resolver.
      for (const { name, agent: other } of cluster.state().nodes)
        if (name !== 'node-1' && other) process.kill(other.pid, 'SIGKILL');
      await eventually(
        () => ask(...names),
        (answers) => Object.values(answers).every((answer) => answer === 'EAI_AGAIN'),
      );
      const counters = await Promise.all(cluster.state().nodes.map(({ name }) => icmpCounters(name)));
      const count = (name: string) => counters.reduce((sum, one) => sum + (one.get(name) ?? 0), 0);
      assert.ok(count('OutDestUnreachs') > 0);
      assert.equal(count('OutRateLimitHost'), 0);
    } finally {
      const up = await cluster.fairlead('up', '--detach');
      assert.equal(up.status, 0, up.error);
    }
    assert.equal((await askNames(cluster, 'node/node-1', ['lookup web']))['lookup web'], web);
  });
});
