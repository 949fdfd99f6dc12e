import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';

// Common uses of kubectl with each requested version: KUBECTL_VERSIONS='1.27 1.28 …'. Each is built by
// tools/kubectl/build.sh, which takes minutes and the network the first time; docs/clients.md has the
// results.

const BUILD = join(import.meta.dirname, '..', 'tools', 'kubectl', 'build.sh');
const versions = (process.env['KUBECTL_VERSIONS'] ?? '').split(/[ ,]+/).filter((one) => one !== '');

const configMap = (value: string) => `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: ${value}}
`;
const WEB = `
apiVersion: v1
kind: List
items:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 1
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          terminationGracePeriodSeconds: 1
          containers:
            - name: echo
              image: fairlead
              command: [sh, -c, "echo begun; exec fairlead echo --port=8080"]
              ports: [{containerPort: 8080}]
              readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
  - apiVersion: v1
    kind: Service
    metadata: {name: web}
    spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`;

// kubectl gives up when the pod refuses the first connection: the pod becomes ready only when it listens.
const SERVER = `
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: NAMESPACE}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: echo
      image: fairlead
      command: [fairlead, echo]
      readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`;

/**
 * A command line (words with spaces in single quotes), and the expected result: output, or exit status and
 * output.
 */
interface Step {
  readonly run: string;
  readonly input?: string;
  readonly status?: number;
  readonly sees: RegExp;
}
const STEPS: readonly Step[] = [
  { run: 'version -o json', sees: /"gitVersion": "v1\.36\.0/ },
  { run: 'api-resources --api-group=apps', sees: /deployments +deploy +apps\/v1 +true +Deployment/ },
  { run: 'create -f -', input: configMap('one'), sees: /^configmap\/settings created$/m },
  { run: 'create -f -', input: configMap('one'), status: 1, sees: /configmaps "settings" already exists/ },
  { run: 'create -f -', input: WEB, sees: /deployment\.apps\/web created\nservice\/web created/ },
  {
    run: 'create -f -',
    input: 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndta: {}\n',
    status: 1,
    sees: /unknown field|ValidationError/,
  },
  { run: 'create secret generic hidden --from-literal=a=b', sees: /^secret\/hidden created$/m },
  { run: 'apply -f -', input: configMap('two'), sees: /^configmap\/settings configured$/m },
  { run: 'apply -f -', input: configMap('two'), sees: /^configmap\/settings unchanged$/m },
  { run: 'diff -f -', input: configMap('two'), sees: /^$/ },
  { run: 'diff -f -', input: configMap('three'), status: 1, sees: /^- +key: two\n\+ +key: three$/m },
  {
    run: 'diff --server-side --force-conflicts -f -',
    input: configMap('four'),
    status: 1,
    sees: /^\+ +key: four$/m,
  },
  {
    run: 'apply --server-side --force-conflicts -f -',
    input: configMap('five'),
    sees: /^configmap\/settings serverside-applied$/m,
  },
  { run: 'get configmap settings -o jsonpath={.data.key}', sees: /^five$/ },
  { run: 'explain deployment.spec.template.spec.containers.image', sees: /image\b[\s\S]*<string>/ },
  { run: 'explain services --recursive', sees: /externalTrafficPolicy\s+<string>/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  {
    run: 'get deploy,svc,pods -o wide',
    sees: /deployment\.apps\/web +1\/1 +1 +1[\s\S]*service\/web +ClusterIP/,
  },
  { run: 'describe deploy web', sees: /1 desired \| 1 updated \| 1 total \| 1 available/ },
  { run: 'exec deploy/web -- hostname', sees: /^web-/ },
  { run: 'exec -i deploy/web -- cat', input: 'typed', sees: /^typed$/ },
  { run: "exec deploy/web -- sh -c 'exit 3'", status: 3, sees: /exit code 3/ },
  { run: 'logs deploy/web', sees: /^begun$/m },
  { run: 'logs -l app=web --tail=1 --prefix', sees: /^\[pod\/web-\S+\/echo\] / },
  {
    run: `patch deploy web -p '{"spec":{"template":{"spec":{"containers":[{"name":"echo","env":[{"name":"A","value":"1"}]}]}}}}'`,
    sees: /patched/,
  },
  { run: 'scale deploy/web --replicas=2', sees: /scaled/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'rollout history deploy/web', sees: /REVISION +CHANGE-CAUSE\n1 .*\n2 / },
  { run: 'auth can-i create pods', sees: /^yes$/m },
  { run: 'create token default', sees: /^ey[\w-]+\.[\w-]+\.[\w-]+$/m },
  { run: 'get events', sees: /ScalingReplicaSet +deployment\/web/ },
  { run: 'delete deploy,svc,configmap,secret --all', sees: /deployment\.apps "web" deleted/ },
];

describe('versions of kubectl', { skip: versions.length === 0 && 'KUBECTL_VERSIONS names none' }, () => {
  let cluster: Cluster;
  before(async () => {
    cluster = await startCluster(['--nodes', '2']);
  });
  after(() => cluster?.down());

  for (const version of versions) {
    describe(`kubectl ${version}`, () => {
      const namespace = `v${version.replace('.', '-')}`;
      let program = '';
      before(async () => {
        const built = spawnSync('sh', [BUILD, version], { encoding: 'utf8', timeout: 900_000 });
        assert.equal(built.status, 0, built.stderr);
        program = built.stdout.trim();
        await cluster.ask('create', 'namespace', namespace);
      });
      const environment = () => ({ ...process.env, KUBECONFIG: cluster.kubeconfig });

      for (const { run, input, status = 0, sees } of STEPS) {
        test(run, async () => {
          const words = [...run.matchAll(/'([^']*)'|(\S+)/g)].map((match) => match[1] ?? match[2] ?? '');
          const running = promisify(execFile)(program, ['-n', namespace, ...words], {
            env: environment(),
            timeout: 90_000,
          });
          // A command that reads no input may have ended already; its exit status is judged.
          running.child.stdin?.on('error', () => {});
          running.child.stdin?.end(input ?? '');
          const { code, stdout, stderr } = await running.then(
            (ended) => ({ code: 0, ...ended }),
            (error: { code: number; stdout: string; stderr: string }) => error,
          );
          assert.equal(code, status, stdout + stderr);
          assert.match(status === 0 ? stdout : stdout + stderr, sees);
        });
      }

      test('port-forward reaches a pod', async () => {
        await cluster.apply(SERVER.replace('NAMESPACE', namespace));
        await cluster.ask('-n', namespace, 'wait', '--for=condition=Ready', 'pod/server', '--timeout=120s');
        const forward = spawn(program, ['-n', namespace, 'port-forward', 'pod/server', ':8080'], {
          env: environment(),
        });
        try {
          let text = '';
          forward.stdout.setEncoding('utf8').on('data', (part: string) => {
            text += part;
          });
          await eventually(
            () => text,
            (out) => /127\.0\.0\.1:\d+ -> 8080/.test(out),
          );
          const port = /127\.0\.0\.1:(\d+)/.exec(text)?.[1];
          const answers = await Promise.all(
            [1, 2, 3].map(() => fetch(`http://127.0.0.1:${port}/hostname`).then((one) => one.text())),
          );
          assert.deepEqual(answers, ['server\n', 'server\n', 'server\n']);
        } finally {
          forward.kill();
          if (forward.exitCode === null) await once(forward, 'close');
        }
      });
    });
  }
});
