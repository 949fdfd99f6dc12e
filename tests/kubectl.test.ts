import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { APPS, CORE, startApi, type TestApi } from '../src/apiserver/testing/api.ts';
import { kubeconfigText } from '../src/kube/kubeconfig-text.ts';

const missing = spawnSync('kubectl', ['version', '--client']).error ? 'kubectl is not installed' : false;

interface Result {
  readonly status: number;
  readonly out: string;
  readonly error: string;
}

/** One step of a session: a command line, and its expected output. */
interface Step {
  readonly run: string;
  readonly sees?: RegExp;
  /** The command must fail with this message. */
  readonly fails?: RegExp;
}

const MANIFEST = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: "host:1", ports: [{containerPort: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{name: http, port: 80, nodePort: 30080}]
`;

const STEPS: readonly Step[] = [
  { run: 'version', sees: /Server Version: v1\.36\.0/ },
  { run: 'api-resources', sees: /deployments +deploy +apps\/v1 +true +Deployment/ },
  { run: 'api-versions', sees: /discovery\.k8s\.io\/v1/ },
  { run: 'cluster-info', sees: /control plane.* is running at/ },
  { run: 'get --raw /readyz', sees: /^ok/ },
  { run: 'get namespaces', sees: /kube-system +Active/ },
  { run: 'create ns shop', sees: /namespace\/shop created/ },
  { run: 'create -f web.yaml', sees: /deployment\.apps\/web created\nservice\/web created/ },
  { run: 'create -f web.yaml', fails: /deployments\.apps "web" already exists/ },
  { run: 'apply -f web.yaml', sees: /deployment\.apps\/web configured\nservice\/web configured/ },
  { run: 'apply -f web.yaml', sees: /deployment\.apps\/web unchanged\nservice\/web unchanged/ },
  { run: 'apply -f more.yaml', sees: /deployment\.apps\/web configured\nservice\/web unchanged/ },
  { run: 'diff -f web.yaml', fails: /- {2}replicas: 3\n\+ {2}replicas: 2/ },
  { run: 'apply --server-side -f more.yaml', sees: /deployment\.apps\/web serverside-applied/ },
  {
    run: 'apply --server-side --field-manager=other -f web.yaml',
    fails: /Apply failed with 1 conflict: conflict with "kubectl": \.spec\.replicas/,
  },
  { run: 'replace -f web.yaml', sees: /deployment\.apps\/web replaced\nservice\/web replaced/ },
  {
    run: 'get deploy,svc,endpointslices -o wide',
    sees: /deployment\.apps\/web +0\/2 +0 +0 +\S+ +c +host:1 +app=web/,
  },
  { run: 'get svc web', sees: /web +NodePort +10\.96\.\d+\.\d+ +<none> +80:30080\/TCP/ },
  { run: 'get svc web -o yaml', sees: /nodePort: 30080/ },
  { run: 'get svc web -o jsonpath={.spec.ports[0].port}', sees: /^80$/ },
  { run: 'get all', sees: /service\/web/ },
  { run: 'get deploy -A -l app=web --sort-by=.metadata.name', sees: /default +web/ },
  { run: 'get pods --field-selector=status.phase=Running', sees: /^$/ },
  {
    run: 'describe deploy web',
    sees: /Selector: +app=web\n[\s\S]*RollingUpdateStrategy: +25% max unavailable, 25% max surge/,
  },
  { run: 'describe svc web', sees: /NodePort: +http +30080\/TCP/ },
  { run: 'explain deployment.spec.replicas', sees: /FIELD: replicas <integer>/ },
  { run: 'explain services.spec --recursive', sees: /externalTrafficPolicy/ },
  { run: 'create deployment made --image=host --replicas=2', sees: /deployment\.apps\/made created/ },
  { run: 'create service clusterip made --tcp=80:8080', sees: /service\/made created/ },
  {
    run: 'create service nodeport taken --tcp=80 --node-port=30080',
    fails: /provided port is already allocated/,
  },
  { run: 'create configmap settings --from-literal=a=b', sees: /configmap\/settings created/ },
  { run: 'create secret generic hidden --from-literal=a=b', sees: /secret\/hidden created/ },
  { run: 'get secret hidden -o jsonpath={.data.a}', sees: /^Yg==$/ },
  { run: 'create job once --image=host -- true', sees: /job\.batch\/once created/ },
  { run: 'create serviceaccount robot', sees: /serviceaccount\/robot created/ },
  { run: 'create token robot', sees: /^eyJ/ },
  { run: 'run single --image=host --labels=app=single', sees: /pod\/single created/ },
  { run: 'get pods -o wide', sees: /single +0\/1 +Pending +0 +\S+ +<none> +<none> +<none> +<none>/ },
  { run: 'get pod single -o yaml', sees: /schedulerName: default-scheduler/ },
  { run: 'describe pod single', sees: /Status: +Pending/ },
  { run: 'expose deployment made --port=80 --name=exposed', sees: /service\/exposed exposed/ },
  { run: 'edit deployment made', sees: /deployment\.apps\/made edited/ },
  { run: 'get deploy made -o jsonpath={.spec.replicas}', sees: /^7$/ },
  {
    run: 'patch deploy made -p {"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"host"}]}}}}',
    sees: /patched/,
  },
  {
    run: 'get deploy made -o jsonpath={.spec.template.spec.containers[*].name}',
    sees: /sidecar host|host sidecar/,
  },
  { run: 'patch deploy made --type=merge -p {"spec":{"paused":true}}', sees: /patched/ },
  {
    run: 'patch deploy made --type=json -p [{"op":"replace","path":"/spec/replicas","value":4}]',
    sees: /patched/,
  },
  {
    run: 'patch deploy made --type=json -p [{"op":"test","path":"/spec/replicas","value":5}]',
    fails: /test of \/spec\/replicas failed/,
  },
  {
    run: 'patch deploy made --subresource=status --type=merge -p {"status":{"replicas":1}}',
    sees: /patched/,
  },
  { run: 'label deploy made tier=front', sees: /labeled/ },
  { run: 'annotate deploy made note=x', sees: /annotated/ },
  { run: 'set image deploy/made host=host:2', sees: /image updated/ },
  { run: 'scale deploy/made --replicas=3', sees: /scaled/ },
  { run: 'rollout restart deploy/web', sees: /restarted/ },
  { run: 'rollout history deploy/web', sees: /REVISION +CHANGE-CAUSE\n1 +<none>\n2 +<none>/ },
  { run: 'rollout undo deploy/web', sees: /rolled back/ },
  { run: 'get deploy web -o jsonpath={.spec.template.spec.containers[0].image}', sees: /^host:0$/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /deployment "web" successfully rolled out/ },
  { run: 'wait --for=condition=Available deploy/web --timeout=120s', sees: /condition met/ },
  { run: 'wait --for=jsonpath={.status.phase}=Running pod/single --timeout=1s', fails: /timed out waiting/ },
  { run: 'auth can-i create pods', sees: /^yes/ },
  { run: 'auth whoami', sees: /Username +admin/ },
  { run: 'get nodes', sees: /n1 +Ready +<none> +\S+ +v1\.36\.0/ },
  { run: 'cordon n1', sees: /node\/n1 cordoned/ },
  { run: 'get nodes', sees: /n1 +Ready,SchedulingDisabled/ },
  { run: 'taint node n1 a=b:NoSchedule', sees: /tainted/ },
  { run: 'describe node n1', sees: /Taints: +a=b:NoSchedule/ },
  { run: 'uncordon n1', sees: /uncordoned/ },
  { run: 'events', sees: /Normal +Tested +Pod\/single +it works/ },
  { run: 'get events', sees: /Normal +Tested +pod\/single +it works/ },
  { run: 'create -f bad-field.yaml', fails: /strict decoding error: unknown field "spec\.selektor"/ },
  {
    run: 'create -f bad-port.yaml',
    fails: /spec\.ports\[0\]\.port: Invalid value: 99999: must be between 1 and 65535, inclusive/,
  },
  {
    run: 'patch deploy web --type=merge -p {"spec":{"selector":{"matchLabels":{"app":"x"}}}}',
    fails: /spec\.selector: Invalid value: .*field is immutable/,
  },
  { run: 'get pods -l a=(b', fails: /unable to parse requirement|found '\('/ },
  { run: 'get nothing', fails: /the server doesn't have a resource type "nothing"/ },
  { run: 'get pod nothing', fails: /pods "nothing" not found/ },
  { run: 'logs single', fails: /does not have a host assigned/ },
  {
    run: 'drain n1 --ignore-daemonsets --force',
    sees: /pod\/placed (evicted|deleted)|evicting pod default\/placed/,
  },
  { run: 'delete deploy,svc --all', sees: /deployment\.apps "web" deleted/ },
  { run: 'delete pod single --wait=false', sees: /pod "single" deleted/ },
  { run: 'delete cm settings', sees: /configmap "settings" deleted/ },
];

describe('kubectl', { skip: missing }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-kubectl-'));
  let api: TestApi;

  before(async () => {
    api = startApi({ version: 'v1.36.0-fairlead' });
    const [port] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
    const admin = api.authority.issue({
      commonName: 'admin',
      organizations: ['system:masters'],
      usage: 'client',
    });
    const files: Record<string, string> = {
      kubeconfig: kubeconfigText({
        name: 'test',
        server: `https://127.0.0.1:${port}`,
        ca: api.authority.cert,
        ...admin,
      }),
      'web.yaml': MANIFEST,
      'more.yaml': MANIFEST.replace('replicas: 2', 'replicas: 3'),
      'bad-field.yaml': MANIFEST.split('---\n')[1]?.replace('selector', 'selektor') ?? '',
      'bad-port.yaml': MANIFEST.split('---\n')[1]?.replace('port: 80, nodePort: 30080', 'port: 99999') ?? '',
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    await prepare(api);
  });
  after(async () => {
    await api.server.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const environment = () => ({
    PATH: process.env['PATH'],
    HOME: folder,
    KUBECONFIG: join(folder, 'kubeconfig'),
    KUBE_EDITOR: 'sed -i s/replicas:.*/replicas:\\ 7/',
  });
  const kubectl = (line: string) =>
    new Promise<Result>((resolve) => {
      execFile(
        'kubectl',
        line.split(' '),
        { cwd: folder, env: environment(), timeout: 60_000 },
        (error, out, text) => {
          const status = typeof error?.code === 'number' ? error.code : error ? 1 : 0;
          resolve({ status, out, error: text });
        },
      );
    });

  for (const { run, sees, fails } of STEPS) {
    test(`kubectl ${run}`, async () => {
      if (run === 'rollout history deploy/web') await writeRevisions(api);
      if (run === 'rollout status deploy/web --timeout=120s') await writeStatus(api);
      const { status, out, error } = await kubectl(run);
      const said = `${out}${error}`;
      if (fails) {
        assert.notEqual(status, 0, said);
        assert.match(said, fails);
      } else {
        assert.equal(status, 0, said);
        if (sees) assert.match(out, sees, said);
      }
    });
  }

  test('kubectl get -w shows changes', async () => {
    const watching = spawn('kubectl', ['get', 'configmaps', '-w', '--no-headers'], {
      cwd: folder,
      env: environment(),
    });
    try {
      const lines = waitForLines(watching, [/^seen +1 /m, /^seen +2 /m]);
      await api.request('POST', `${CORE}/configmaps`, {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: 'seen' },
        data: { a: '1' },
      });
      await lines.first;
      await api.request(
        'PATCH',
        `${CORE}/configmaps/seen`,
        { data: { b: '2' } },
        { 'content-type': 'application/merge-patch+json' },
      );
      await lines.all;
    } finally {
      watching.kill();
    }
  });
});

/** Creates a node, a pod on it and an event, as agents and controllers would write them. */
async function prepare(api: TestApi): Promise<void> {
  const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } };
  await api.request('POST', '/api/v1/nodes', node);
  await api.request('PUT', '/api/v1/nodes/n1/status', {
    ...node,
    status: {
      conditions: [{ type: 'Ready', status: 'True', reason: 'Ready', message: '' }],
      nodeInfo: { kubeletVersion: 'v1.36.0' },
    },
  });
  await api.request('POST', `${CORE}/pods`, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'placed' },
    spec: { nodeName: 'n1', terminationGracePeriodSeconds: 0, containers: [{ name: 'c', image: 'host' }] },
  });
  await api.request('POST', `${CORE}/events`, {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name: 'single.1' },
    involvedObject: { kind: 'Pod', namespace: 'default', name: 'single' },
    type: 'Normal',
    reason: 'Tested',
    message: 'it works',
    count: 1,
    firstTimestamp: '2026-01-01T00:00:00Z',
    lastTimestamp: '2026-01-01T00:00:00Z',
  });
}

/** Creates two ReplicaSets of the Deployment web, as its controller would leave them. */
async function writeRevisions(api: TestApi): Promise<void> {
  const { body: deployment } = await api.request('GET', `${APPS}/deployments/web`);
  const { name, uid } = deployment.metadata;
  await api.request(
    'PATCH',
    `${APPS}/deployments/web`,
    { metadata: { annotations: { 'deployment.kubernetes.io/revision': '2' } } },
    { 'content-type': 'application/merge-patch+json' },
  );
  for (const revision of ['1', '2']) {
    const template = structuredClone(deployment.spec.template);
    const labels = { ...template.metadata.labels, 'pod-template-hash': revision };
    template.metadata.labels = labels;
    if (revision === '1') template.spec.containers[0].image = 'host:0';
    await api.request('POST', `${APPS}/replicasets`, {
      apiVersion: 'apps/v1',
      kind: 'ReplicaSet',
      metadata: {
        name: `web-${revision}`,
        labels,
        annotations: { 'deployment.kubernetes.io/revision': revision },
        ownerReferences: [{ apiVersion: 'apps/v1', kind: 'Deployment', name, uid, controller: true }],
      },
      spec: { replicas: 0, selector: { matchLabels: labels }, template },
    });
  }
}

/** Writes the status of a Deployment whose rollout is complete. */
async function writeStatus(api: TestApi): Promise<void> {
  const { body } = await api.request('GET', `${APPS}/deployments/web`);
  const { replicas } = body.spec;
  await api.request('PUT', `${APPS}/deployments/web/status`, {
    ...body,
    status: {
      observedGeneration: body.metadata.generation,
      replicas,
      updatedReplicas: replicas,
      readyReplicas: replicas,
      availableReplicas: replicas,
      conditions: [{ type: 'Available', status: 'True' }],
    },
  });
}

const LINES_MS = 60_000;

/**
 * Resolves when the output of a process contains the first, and all, of the expected lines; rejects if it
 * ends before, or does not print them within a minute.
 */
function waitForLines(process: ChildProcess, awaited: readonly RegExp[]) {
  let seen = '';
  let looks: (() => void)[] = [];
  // One listener for all callers: a line may arrive in pieces.
  process.stdout?.on('data', (chunk: Buffer) => {
    seen += chunk.toString();
    for (const look of looks) look();
  });
  const until = (patterns: readonly RegExp[]) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (!patterns.every((pattern) => pattern.test(seen))) return;
        clearTimeout(late);
        looks = looks.filter((other) => other !== look);
        resolve();
      };
      const fail = (why: string) => reject(new Error(`${why}: ${JSON.stringify(seen)}`));
      const late = setTimeout(() => fail('kubectl has shown only'), LINES_MS);
      process.on('exit', () => {
        clearTimeout(late);
        fail('kubectl ended after');
      });
      looks.push(look);
    });
  const [first] = awaited;
  const all = until(awaited);
  // A caller that waits for the first line gets a failure there.
  all.catch(() => {});
  return { first: until(first ? [first] : []), all };
}
