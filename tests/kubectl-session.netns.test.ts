import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, REAL_CONTROL_PLANE, startCluster } from './testing/cluster.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

const ROOT = join(import.meta.dirname, '..');

/**
 * One step of a session with running pods: a command line (words with spaces in single quotes), and its
 * expected output.
 */
interface Step {
  readonly run: string;
  readonly sees?: RegExp;
  readonly fails?: RegExp;
  readonly input?: string;
  /** Not for a real control plane, which answers in another way. */
  readonly isOurs?: boolean;
}

const WEB = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: echo
        image: fairlead
        command: [fairlead, echo, --port=8080]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
`;

const ORDERED = `apiVersion: v1
kind: Namespace
metadata: {name: ordered}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: ordered}
---
apiVersion: v1
kind: Pod
metadata: {name: held, namespace: ordered, finalizers: [example.com/held]}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: host, command: [sleep, infinity]}]
`;

const STEPS: readonly Step[] = [
  { run: 'version', sees: /Server Version: v1\.36\.0/ },
  { run: 'api-resources', sees: /endpointslices +discovery\.k8s\.io\/v1 +true +EndpointSlice/ },
  {
    run: 'get nodes -o wide',
    sees: /node-1 +Ready +<none> +\S+ +v1\.36\.0\S* +172\.30\.\d+\.11 +<none> .*crun:\/\//,
  },
  {
    run: 'get nodes,pods,svc,endpointslices,deploy -o wide',
    sees: /service\/hello +NodePort +10\.96\.\d+\.\d+ +<none> +80:30080\/TCP,80:30080\/UDP[\s\S]*deployment\.apps\/hello +3\/3 +3 +3 +\S+ +echo +fairlead +app=hello/,
  },
  { run: 'get pods -o yaml', sees: /kind: List/ },
  { run: 'get deploy hello -o yaml', sees: /availableReplicas: 3/ },
  { run: 'describe node node-1', sees: /Ready +True[\s\S]*Non-terminated Pods/ },
  {
    run: 'get nodes -l beta.kubernetes.io/os=linux,beta.kubernetes.io/arch -o name',
    sees: /^node\/node-1$/m,
  },
  { run: 'describe pod client', sees: /Normal +Started[\s\S]*Started container shell/ },
  { run: 'describe svc hello', sees: /Endpoints: +10\.244\.\d+\.\d+:8080/ },
  {
    run: 'describe deploy hello',
    sees: /Replicas: +3 desired \| 3 updated \| 3 total \| 3 available \| 0 unavailable/,
  },
  { run: 'describe endpointslices', sees: /Name: +hello-/ },
  { run: 'apply -f -', input: WEB, sees: /deployment\.apps\/web created/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'expose deploy/web --port=80 --target-port=8080', sees: /service\/web exposed/ },
  { run: 'exec client -- fairlead request http://web', sees: /^web-/ },
  { run: 'apply -f -', input: WEB.replace('replicas: 2', 'replicas: 3'), sees: /configured/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'get deploy web', sees: /web +3\/3 +3 +3/ },
  {
    run: 'create deployment made --image=host --replicas=1 -- sleep infinity',
    sees: /deployment\.apps\/made created/,
  },
  { run: 'create service clusterip made --tcp=80:8080', sees: /service\/made created/ },
  { run: 'create configmap settings --from-literal=a=b', sees: /configmap\/settings created/ },
  { run: 'create secret generic hidden --from-literal=a=b', sees: /secret\/hidden created/ },
  { run: 'create namespace shop', sees: /namespace\/shop created/ },
  { run: 'run task -n shop --image=host --restart=Never -- echo done', sees: /pod\/task created/ },
  {
    run: 'wait -n shop --for=jsonpath={.status.phase}=Succeeded pod/task --timeout=120s',
    sees: /condition met/,
  },
  { run: 'logs -n shop task', sees: /^done$/m },
  {
    run: "run shell --image=host --command -- sh -c 'echo begun; exec sleep infinity'",
    sees: /pod\/shell created/,
  },
  { run: 'wait --for=condition=Ready pod/shell --timeout=120s', sees: /condition met/ },
  { run: 'exec shell -- hostname', sees: /^shell$/m },
  { run: `exec shell -- echo ${'x'.repeat(20_000)}`, sees: /^x{20000}$/m },
  { run: 'exec -i shell -- cat', input: 'typed', sees: /^typed$/ },
  { run: 'exec shell -- sh -c "exit 3"', fails: /exit code 3/ },
  { run: 'logs shell --tail=1', sees: /begun/ },
  { run: 'edit deploy web', sees: /deployment\.apps\/web edited/ },
  { run: 'get deploy web -o jsonpath={.metadata.labels.edited}', sees: /^yes$/ },
  {
    run: `patch deploy web -p '{"spec":{"template":{"metadata":{"annotations":{"a":"1"}}}}}'`,
    sees: /patched/,
  },
  { run: `patch deploy web --type=merge -p '{"spec":{"revisionHistoryLimit":5}}'`, sees: /patched/ },
  {
    run: `patch svc web --type=json -p '[{"op":"replace","path":"/spec/ports/0/port","value":81}]'`,
    sees: /patched/,
  },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'exec client -- fairlead request http://web:81', sees: /^web-/ },
  { run: 'label svc web tier=front', sees: /labeled/ },
  { run: 'get svc -l tier=front -o name', sees: /^service\/web$/m },
  { run: 'scale deploy/web --replicas=1', sees: /scaled/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'rollout restart deploy/web', sees: /restarted/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'rollout history deploy/web', sees: /REVISION +CHANGE-CAUSE\n1 .*\n2 .*\n3 / },
  { run: 'rollout undo deploy/web', sees: /rolled back/ },
  { run: 'rollout status deploy/web --timeout=120s', sees: /successfully rolled out/ },
  { run: 'explain service.spec.externalTrafficPolicy', sees: /FIELD: externalTrafficPolicy <string>/ },
  { run: 'events --for pod/shell', sees: /^(?=[\s\S]*Normal +Scheduled)(?=[\s\S]*Normal +Started)/ },
  { run: 'get events', sees: /Normal +ScalingReplicaSet +deployment\/web/ },
  // A real control plane needs metrics-server.
  { run: 'top node', sees: /^node-1 +\d+m .*\nnode-2 +\d+m /m, isOurs: true },
  { run: 'delete deploy,svc web', sees: /deployment\.apps "web" deleted/ },
  { run: 'delete pod shell --grace-period=0', sees: /pod "shell" (force )?deleted/ },
  { run: 'delete namespace shop', sees: /namespace "shop" deleted/ },
  { run: 'get namespace shop', fails: /namespaces "shop" not found/ },
  { run: 'apply -f -', input: ORDERED, sees: /pod\/held created/ },
  { run: 'delete namespace ordered --wait=false', sees: /namespace "ordered" deleted/ },
  // Pods first: a namespace cannot be deleted while a pod is terminating.
  {
    // kube-controller-manager reports no remaining content while it waits for pods.
    isOurs: true,
    run: 'wait --for=condition=NamespaceContentRemaining namespace/ordered --timeout=120s',
    sees: /condition met/,
  },
  { run: 'get configmap kept -n ordered -o name', sees: /configmap\/kept/ },
  { run: `patch pod held -n ordered --type=merge -p '{"metadata":{"finalizers":null}}'`, sees: /patched/ },
  { run: 'wait --for=delete namespace/ordered --timeout=120s' },
  { run: 'get configmap kept -n ordered', fails: /not found/ },
];

const PROGRAMS: readonly { readonly name: string; readonly find: () => string | null | undefined }[] = [
  {
    name: "Kubernetes' own kubectl in KUBEBUILDER_ASSETS",
    find: () => process.env['KUBEBUILDER_ASSETS'] && join(process.env['KUBEBUILDER_ASSETS'], 'kubectl'),
  },
  {
    name: "the machine's kubectl",
    find: () => (spawnSync('kubectl', ['version', '--client']).status === 0 ? 'kubectl' : null),
  },
  {
    name: 'kubectl 1.33',
    find() {
      const built = spawnSync('sh', [join(ROOT, 'tools', 'kubectl', 'build.sh')], {
        encoding: 'utf8',
        timeout: 600_000,
      });
      return built.status === 0 ? built.stdout.trim() : null;
    },
  },
];

/** One program has the whole session; kubectl-versions.netns.test.ts has common uses with each version that is asked for. */
const here = TAKES_FULL_PRODUCT ? undefined : PROGRAMS.find(({ find }) => find());
const CHOSEN = here === undefined ? PROGRAMS : [here];

for (const { name, find } of CHOSEN) {
  describe(name, () => {
    const program = find();
    if (!program) {
      test.skip(`${name} is not here and cannot be built`);
      return;
    }
    let cluster: Cluster;
    before(async () => {
      cluster = await startCluster(['--nodes', '2', '-f', HELLO], undefined, program);
    });
    after(() => cluster?.down());

    for (const [index, { run, sees, fails, input, isOurs }] of STEPS.entries()) {
      const skip = isOurs === true && REAL_CONTROL_PLANE !== null && 'the embedded control plane only';
      test(`${index + 1}. kubectl ${run}`, { skip }, async () => {
        const words = [...run.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
          (match) => match[1] ?? match[2] ?? match[3] ?? '',
        );
        const { status, out, error } = await cluster.kubectlWith(
          {
            input: input ?? '',
            env: {
              KUBE_EDITOR: `sed -i 's/^  labels:$/  labels:\\n    edited: "yes"/; s/^  name: web$/  name: web\\n  labels:\\n    edited: "yes"/'`,
            },
          },
          ...words,
        );
        if (fails) {
          assert.notEqual(status, 0, out);
          assert.match(out + error, fails);
        } else {
          assert.equal(status, 0, error);
          assert.match(out, sees ?? /^/);
        }
      });
    }

    test('get -w shows changes', async () => {
      const watch = follow(['get', 'deploy', 'hello', '-w']);
      await eventually(
        () => watch.text(),
        (text) => /hello +3\/3/.test(text),
      );
      await cluster.ask('scale', 'deploy/hello', '--replicas=4');
      await eventually(
        () => watch.text(),
        (text) => /hello +4\/4/.test(text),
      );
      await watch.stop();
      await cluster.ask('scale', 'deploy/hello', '--replicas=3');
    });

    test('logs -f follows until the container ends', async () => {
      const text = 'for n in 1 2 3; do echo line $n; sleep 0.3; done';
      await cluster.ask(
        'run',
        'talk',
        '--image=host',
        '--restart=Never',
        '--command',
        '--',
        'sh',
        '-c',
        text,
      );
      await cluster.ask('wait', '--for=jsonpath={.status.phase}=Running', 'pod/talk', '--timeout=120s');
      const logs = follow(['logs', '-f', 'talk']);
      assert.equal(await logs.ended, 0);
      assert.equal(logs.text(), 'line 1\nline 2\nline 3\n');
    });

    test('exec -it has a terminal', async () => {
      const command = `${program} exec -it client -- sh -c 'test -t 0 && tty && stty size'`;
      const { status, stdout } = spawnSync(
        'script',
        ['-qec', `stty rows 33 cols 99; ${command}`, '/dev/null'],
        {
          encoding: 'utf8',
          input: '',
          env: { ...process.env, KUBECONFIG: cluster.kubeconfig },
        },
      );
      assert.equal(status, 0, stdout);
      // script(1) sends NUL characters at the end of its input, which the terminal may echo at any time.
      assert.match(stdout.replaceAll('^@', ''), /\/dev\/pts\/\d+\r?\n33 99/);
    });

    /** Starts a kubectl that runs until it is stopped. */
    function follow(words: readonly string[]) {
      const child = spawn(program ?? '', words, {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, KUBECONFIG: cluster.kubeconfig },
      });
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
      return {
        text: () => text,
        ended,
        async stop() {
          child.kill();
          await ended;
        },
      };
    }
  });
}
