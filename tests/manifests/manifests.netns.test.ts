import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { type Cluster, startCluster } from '../testing/cluster.ts';

// Typical manifests on one cluster of two nodes with both families. `up` gets some of them and waits until
// all of these are ready; kubectl applies the others. Each test checks the purpose of one.

const manifest = (name: string) => join(import.meta.dirname, `${name}.yaml`);
const UP = ['guestbook', 'ingress-controller', 'ingress', 'wordpress', 'operator', 'pipeline'];
const KUBECTL = [
  'aggregated-api',
  'backup',
  'chart',
  'gateway-crds',
  'log-collector',
  'monitoring',
  'redis',
  'sock-shop',
];

let cluster: Cluster;
before(async () => {
  cluster = await startCluster([
    ...['--nodes', '2', '--ip-family', 'dual', '--timeout', '180'],
    ...UP.flatMap((name) => ['-f', manifest(name)]),
  ]);
  await cluster.ask('apply', ...KUBECTL.flatMap((name) => ['-f', manifest(name)]));
});
after(() => cluster?.down());

const rolledOut = (namespace: string, ...objects: string[]) =>
  Promise.all(
    objects.map((object) => cluster.ask('-n', namespace, 'rollout', 'status', object, '--timeout=120s')),
  );
/** Requests a URL from a place; throws on failure and statuses from 400. */
async function curl(place: string, url: string, ...options: string[]): Promise<string> {
  const words = ['-sgS', '--fail-with-body', '--max-time', '10', ...options, url];
  const { status, out, error } = await cluster.fairlead('exec', place, '--', 'curl', ...words);
  if (status !== 0) throw new Error(`${url} from ${place}: ${error}${out}`);
  return out;
}
/** Works like `curl`, repeated for a while: the server may not listen yet. */
async function answer(...request: Parameters<typeof curl>): Promise<string> {
  for (const end = Date.now() + 30_000; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    try {
      return await curl(...request);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}
/** Returns the first address of a Service of type LoadBalancer, in brackets if URLs need them. */
async function loadBalancer(namespace: string, service: string): Promise<string> {
  const path = 'jsonpath={.status.loadBalancer.ingress[0].ip}';
  const ip = await eventually(
    () => cluster.ask('-n', namespace, 'get', 'service', service, '-o', path),
    (text) => text !== '',
  );
  return ip.includes(':') ? `[${ip}]` : ip;
}
const jsonpath = (namespace: string, object: string, path: string) =>
  cluster.ask('-n', namespace, 'get', object, '-o', `jsonpath=${path}`);

test('guestbook: entries written through the front end are read from every follower', async () => {
  const address = await loadBalancer('guestbook', 'frontend');
  assert.equal(await answer('outside', `http://${address}/sign?message=hello`), 'written');
  const read = new Set<string>();
  await eventually(async () => {
    const { from, messages } = JSON.parse(await curl('outside', `http://${address}/`)) as {
      from: string;
      messages: string[];
    };
    if (messages.includes('hello')) read.add(from);
    return read.size === 2;
  });
  for (const from of read) assert.match(from, /^redis-follower-/);
});

test('wordpress: posts and uploads outlive the pods of the database and of the blog', async () => {
  const port = await jsonpath('wordpress', 'service/wordpress', '{.spec.ports[0].nodePort}');
  const [node] = cluster.state().nodes;
  const url = `http://${node?.addresses[0]}:${port}`;
  await answer('outside', `${url}/post?title=first`);
  assert.equal(await curl('outside', `${url}/upload?file=photo`), 'kept\n');
  await cluster.ask('-n', 'wordpress', 'delete', 'pod', '-l', 'app=wordpress');
  await rolledOut('wordpress', 'deployment/wordpress-mysql', 'deployment/wordpress');
  assert.equal(await answer('outside', url), 'first\n');
  assert.equal(await curl('outside', `${url}/uploads`), 'photo\n');
});

test('redis: a pod that is deleted comes back with its name and its volume', async () => {
  const ask = (pod: string, path: string, ...options: string[]) =>
    answer('redis/redis-0', `http://${pod}.redis.redis.svc.cluster.local:6379/${path}`, ...options);
  const state = async () =>
    JSON.parse(await ask('redis-1', '')) as { name: string; id: string; keys: object };
  assert.equal(await ask('redis-0', 'colour', '-d', 'blue', '-X', 'PUT'), 'OK\n');
  const before = await state();
  assert.deepEqual([before.name, before.keys], ['redis-1', { colour: 'blue' }]);
  const uid = await jsonpath('redis', 'pod/redis-1', '{.metadata.uid}');
  await cluster.ask('-n', 'redis', 'delete', 'pod', 'redis-1');
  await eventually(async () => {
    const { out } = await cluster.kubectl(
      '-n',
      'redis',
      'get',
      'pod',
      'redis-1',
      '-o',
      'jsonpath={.metadata.uid}',
    );
    return out !== '' && out !== uid;
  });
  await rolledOut('redis', 'statefulset/redis');
  assert.deepEqual(await eventually(state), before);
  assert.equal(
    await jsonpath('redis', 'pvc', '{range .items[*]}{.metadata.name}={.status.phase} {end}'),
    'data-redis-0=Bound data-redis-1=Bound data-redis-2=Bound ',
  );
  assert.equal(await jsonpath('redis', 'pdb/redis', '{.status.disruptionsAllowed}'), '1');
});

test('chart: the request of its test pod succeeds, others fail; budget and autoscaler select the pods', async () => {
  await rolledOut('chart', 'deployment/shop-storefront');
  await cluster.ask(
    ...['-n', 'chart', 'wait', '--for=jsonpath={.status.phase}=Succeeded', '--timeout=60s'],
    'pod/shop-storefront-test-connection',
  );
  assert.match(
    await cluster.ask('-n', 'chart', 'logs', 'shop-storefront-test-connection'),
    /^shop-storefront-\S+\n$/,
  );
  // Its NetworkPolicy admits only clients with a label.
  await assert.rejects(
    curl('redis/redis-0', 'http://shop-storefront.chart', '--max-time', '2'),
    /timed out|refused/i,
  );
  // The autoscaler brings the Deployment to its minimum.
  await eventually(
    () => jsonpath('chart', 'deployment/shop-storefront', '{.status.readyReplicas}'),
    (ready) => ready === '2',
    60_000,
  );
  await eventually(
    () => jsonpath('chart', 'pdb/shop-storefront', '{.status.currentHealthy} {.status.disruptionsAllowed}'),
    (text) => text === '2 1',
  );
});

test('monitoring: it discovers nodes and pods through the API with its token, and has no further rights', async () => {
  await rolledOut('monitoring', 'deployment/prometheus', 'deployment/exporter');
  interface Seen {
    targets?: { job: string; name: string; up: boolean }[];
    endpoints?: number;
    secrets?: number;
    apiserver?: number;
    error?: string;
  }
  const seen = await eventually(
    async () =>
      JSON.parse(
        await answer('node/node-1', `http://${await clusterAddress('monitoring', 'prometheus')}`),
      ) as Seen,
    ({ targets }) => targets?.length === 4 && targets.every(({ up }) => up),
  );
  assert.deepEqual(seen.targets?.map(({ job }) => job).sort(), ['exporter', 'exporter', 'nodes', 'nodes']);
  assert.deepEqual([seen.endpoints, seen.secrets, seen.apiserver], [200, 403, 200]);
});

test('sock-shop: one request to the front end reaches every service behind it', async () => {
  const names = await cluster.ask('-n', 'sock-shop', 'get', 'deployments', '-o', 'name');
  const deployments = names.trim().split('\n');
  assert.equal(deployments.length, 13);
  await rolledOut('sock-shop', ...deployments);
  const port = await jsonpath('sock-shop', 'service/front-end', '{.spec.ports[0].nodePort}');
  const [, node] = cluster.state().nodes;
  const text = await answer('outside', `http://${node?.addresses[0]}:${port}/`);
  const asked = [...text.matchAll(/^ *(?:http:\S+ )?(\S+) from \1-/gm)].map(([, name]) => name);
  assert.deepEqual(
    [...new Set(asked)].sort(),
    deployments
      .map((name) => name.split('/')[1])
      .filter((name) => name !== 'queue-master')
      .sort(),
  );
});

describe('ingress controller', () => {
  before(async () => {
    await cluster.ask(
      ...['-n', 'ingress', 'wait', '--for=condition=Complete', '--timeout=60s', 'job', '--all'],
    );
    await rolledOut('ingress', 'deployment/edge-router');
  });
  test('an Ingress is forwarded and gets an address', async () => {
    const address = await loadBalancer('ingress', 'edge-router');
    const text = await answer('outside', `http://${address}/`, '-H', 'Host: book.example.com');
    assert.match(text, /"from":"redis-follower-/);
    await assert.rejects(curl('outside', `http://${address}/`, '-H', 'Host: other.example.com'), /404/);
    await eventually(
      () =>
        jsonpath(
          'guestbook',
          'ingress/guestbook',
          '{.spec.ingressClassName} {.status.loadBalancer.ingress[0].ip}',
        ),
      (text) => /^edge-router \S+$/.test(text),
    );
  });
  test('its webhook refuses an Ingress with a forbidden annotation', async () => {
    await assert.rejects(
      cluster.ask(
        ...['-n', 'guestbook', 'annotate', 'ingress/guestbook', 'edge-router.example.com/server-snippet=x'],
      ),
      /admission webhook "validate\.edge-router\.example\.com" denied the request: annotation edge-router\.example\.com\/server-snippet is not allowed/,
    );
  });
});

describe('an API server behind the cluster’s', () => {
  before(async () => {
    await rolledOut('sea', 'deployment/sea-api');
    await cluster.ask('wait', '--for=condition=Available', 'apiservice/v1.sea.example.com', '--timeout=60s');
  });
  test('its kinds are discovered and read like those of the cluster', async () => {
    assert.match(
      await cluster.ask('api-resources', '--api-group=sea.example.com'),
      /fishes +fi +sea\.example\.com\/v1 +false +Fish/,
    );
    assert.equal(
      await cluster.ask('get', 'fi', '-o', 'name'),
      'fish.sea.example.com/cod\nfish.sea.example.com/ray\n',
    );
    assert.equal(await cluster.ask('get', 'fish', 'ray', '-o', 'jsonpath={.spec.fins}'), '2');
  });
  test('it receives the user of a request', async () => {
    const path = '/apis/sea.example.com/v1/fishes';
    const list = await cluster.ask('get', '--raw', path, '--as=nemo', '--as-group=system:masters');
    assert.equal(JSON.parse(list).metadata.annotations.user, 'nemo');
    await assert.rejects(
      cluster.ask('get', 'fish', 'eel', '--as=dory', '--as-group=system:masters'),
      /dory asked for eel/,
    );
  });
  test('an unauthorized request is rejected before it', async () => {
    await assert.rejects(
      cluster.ask('get', 'fishes', '--as=nemo'),
      /fishes\.sea\.example\.com is forbidden: User "nemo" cannot list resource "fishes"/,
    );
  });
  test('while it is down, only its group is unavailable', async () => {
    await cluster.ask('-n', 'sea', 'scale', 'deployment/sea-api', '--replicas=0');
    await cluster.ask(
      'wait',
      '--for=condition=Available=False',
      'apiservice/v1.sea.example.com',
      '--timeout=60s',
    );
    await assert.rejects(
      cluster.ask('get', '--raw', '/apis/sea.example.com/v1/fishes'),
      /ServiceUnavailable|unavailable/i,
    );
    assert.match(await cluster.ask('get', 'namespace', 'sea', '-o', 'name'), /namespace\/sea/);
    await cluster.ask('delete', 'apiservice/v1.sea.example.com');
  });
});

describe('gateway definitions', () => {
  before(async () => {
    await cluster.ask('wait', '--for=condition=Established', '--timeout=30s', '-f', manifest('gateway-crds'));
    await cluster.ask('apply', '-f', manifest('gateway'));
  });
  test('defaults are filled in', async () => {
    assert.equal(
      await jsonpath('edge', 'httproutes.edge.example.com/everything', '{.spec.rules[0].matches[0].path}'),
      '{"type":"PathPrefix","value":"/"}',
    );
    assert.equal(
      await jsonpath('edge', 'gateways.v1.edge.example.com/front', '{.spec.listeners[1].tls.mode}'),
      'Terminate',
    );
  });
  test('the older version returns the same object with a deprecation warning', async () => {
    const { out, error } = await cluster.kubectl(
      ...['-n', 'edge', 'get', 'gateways.v1beta1.edge.example.com', 'front', '-o', 'jsonpath={.apiVersion}'],
    );
    assert.equal(out, 'edge.example.com/v1beta1');
    assert.match(error, /Warning: The v1beta1 version of Gateway is deprecated; use v1/);
  });
  test('kubectl get shows the columns', async () => {
    assert.match(
      await cluster.ask('-n', 'edge', 'get', 'egtw,gatewayclasses.edge.example.com'),
      /NAME +CLASS +LISTENERS +AGE\n\S+\/front +example +http +\S+\n\nNAME +CONTROLLER +ACCEPTED\n\S+\/example +edge\.example\.com\/gateway-controller +Unknown\n/,
    );
  });
  const gateway = (listeners: string) =>
    `apiVersion: edge.example.com/v1\nkind: Gateway\nmetadata: {name: bad, namespace: edge}\nspec: {gatewayClassName: example, listeners: ${listeners}}\n`;
  for (const [what, object, message] of [
    [
      'two listeners with one port',
      gateway('[{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}]'),
      /spec\.listeners: Invalid value: .*Combination of port, protocol and hostname must be unique/,
    ],
    [
      'TLS settings on a plain listener',
      gateway('[{name: a, port: 80, protocol: HTTP, tls: {certificateRefs: [{name: x}]}}]'),
      /tls must not be specified for protocols HTTP and TCP/,
    ],
    [
      'a change of an immutable field',
      'apiVersion: edge.example.com/v1\nkind: GatewayClass\nmetadata: {name: example}\nspec: {controllerName: other.example.com/x}\n',
      /spec\.controllerName: Invalid value: .*Value is immutable/,
    ],
    [
      'a path with two slashes',
      'apiVersion: edge.example.com/v1\nkind: HTTPRoute\nmetadata: {name: bad, namespace: edge}\nspec: {rules: [{matches: [{path: {value: //}}]}]}\n',
      /must not contain '\/\/'/,
    ],
  ] as const) {
    test(`a rule refuses ${what}`, async () => {
      await assert.rejects(cluster.apply(object), message);
    });
  }
});

describe('operator', () => {
  const site = (path: string) => jsonpath('operator', 'website/welcome', path);
  test("creates a website's objects and reports their status", async () => {
    await eventually(
      () => site('{.status.readyReplicas} {.status.conditions[0].status}'),
      (text) => text === '2 True',
    );
    const address = await clusterAddress('operator', 'site-welcome');
    assert.match(await answer('node/node-2', `http://${address}`), /^welcome from site-welcome-/);
    assert.match(
      await cluster.ask('-n', 'operator', 'get', 'ws'),
      /NAME +TEXT +READY +AGE\nwelcome +welcome +2 /,
    );
  });
  test('follows the scale of a website', async () => {
    await cluster.ask('-n', 'operator', 'scale', 'website/welcome', '--replicas=1');
    await eventually(
      () => site('{.status.replicas} {.status.readyReplicas}'),
      (text) => text === '1 1',
    );
  });
  test('another pod becomes leader when the leader is deleted', async () => {
    const leader = () => jsonpath('operator', 'lease/website-operator', '{.spec.holderIdentity}');
    const before = await leader();
    await cluster.ask('-n', 'operator', 'delete', 'pod', before);
    await eventually(leader, (now) => now !== before);
    assert.notEqual(await jsonpath('operator', 'lease/website-operator', '{.spec.leaseTransitions}'), '0');
  });
  test('keeps a record of a deleted website, whose objects are deleted with it', async () => {
    await cluster.ask('-n', 'operator', 'delete', 'website', 'welcome', '--timeout=60s');
    assert.equal(await jsonpath('operator', 'configmap/welcome-record', '{.data.text}'), 'welcome');
    await eventually(
      () =>
        cluster.ask(
          '-n',
          'operator',
          'get',
          'deployment,service,pod',
          '-l',
          'web.example.com/website',
          '-o',
          'name',
        ),
      (text) => text === '',
    );
  });
});

test("log collector: every node's pod has the logs of that node's containers", async () => {
  await rolledOut('logging', 'daemonset/collector', 'deployment/talker');
  for (const { name, addresses } of cluster.state().nodes) {
    const pod = (
      await cluster.ask(
        ...['-n', 'logging', 'get', 'pods', '-l', 'app=talker', '--field-selector', `spec.nodeName=${name}`],
        ...['-o', 'jsonpath={.items[*].metadata.name}'],
      )
    ).trim();
    const line = new RegExp(
      `^${name} ${pod}_logging_talker-[0-9a-f]+\\.log \\S+ stdout F said by ${pod}$`,
      'm',
    );
    const text = await eventually(
      () => curl('outside', `http://${addresses[0]}:2020/`),
      (out) => line.test(out),
    );
    assert.match(text, line);
  }
});

test('pipeline: init containers, sidecar and shared volumes produce the result', async () => {
  const logs = (...words: string[]) => cluster.ask('-n', 'pipeline', 'logs', ...words);
  assert.equal(await logs('job/transform', '-c', 'load'), 'loaded 200\n');
  assert.equal(await logs('job/transform', '-c', 'uploader'), 'uploaded 1 2 3\n');
  const shares = await logs('-l', 'app=shares', '--tail=-1');
  assert.deepEqual(
    shares.trim().split('\n').sort(),
    [0, 1, 2].map((n) => `share ${n} by shares-${n}.shares.pipeline.svc.cluster.local`),
  );
  assert.equal(await jsonpath('pipeline', 'job/shares', '{.status.completedIndexes}'), '0-2');
});

test('backup: a run by hand and a run of the schedule write their files to the volume', async () => {
  await rolledOut('backup', 'deployment/database', 'deployment/browser');
  await cluster.ask('-n', 'backup', 'create', 'job', 'by-hand', '--from=cronjob/backup');
  const files = async () =>
    (
      await cluster.ask(
        '-n',
        'backup',
        'exec',
        'deploy/browser',
        '--',
        'sh',
        '-c',
        // grep fails while the file does not exist.
        'cd /backups; grep -l database- *.dump || true',
      )
    ).split('\n');
  await eventually(files, (names) => names.includes('by-hand.dump'));
  await eventually(files, (names) => names.some((name) => /^backup-\d+\.dump$/.test(name)), 90_000);
  await eventually(
    () => jsonpath('backup', 'cronjob/backup', '{.status.lastSuccessfulTime}'),
    (time) => time !== '',
  );
});

/** Returns a Service's cluster IP and port. */
async function clusterAddress(namespace: string, service: string): Promise<string> {
  const path = '{.spec.clusterIP} {.spec.ports[0].port}';
  const [ip, port] = (await jsonpath(namespace, `service/${service}`, path)).split(' ');
  return `${ip?.includes(':') ? `[${ip}]` : ip}:${port}`;
}
