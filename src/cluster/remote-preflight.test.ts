import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Client } from '../kube/client.ts';
import { ApiError } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import type { Pod } from '../kube/types.ts';
import { type Clock, manualClock } from '../lib/clock.ts';
import { nodeTargets, runOnNodes } from './node-pods.ts';
import { CLEANUP, refuseRunningAgents } from './remote-cleanup.ts';
import { type NodePreflight, PREFLIGHT_NAMESPACE, preflightNodes } from './remote-preflight.ts';

/** The status of a node's pod, and what it printed. */
interface NodeScript {
  readonly status: object;
  readonly log?: string;
}

const GOOD = { level: 'ok', what: 'all is well', fix: null } as const;
const answer = (exit: 'Succeeded' | 'Failed', log: string): NodeScript => ({ status: { phase: exit }, log });
const waiting = (reason: string, message?: string): NodeScript => ({
  status: {
    phase: 'Pending',
    containerStatuses: [{ state: { waiting: { reason, ...(message ? { message } : {}) } } }],
  },
});

interface Cluster {
  readonly client: Client;
  readonly transport: Transport;
  /** "create namespaces fairlead-preflight", … */
  readonly done: string[];
  readonly pods: Map<string, Pod>;
}

/** An API server with the nodes' pods, which end at once. */
function cluster(nodes: Readonly<Record<string, NodeScript>>, onRead: () => void = () => {}): Cluster {
  const done: string[] = [];
  const pods = new Map<string, Pod>();
  let hasNamespace = false;
  const missing = () => new ApiError(404, { reason: 'NotFound', message: 'not found' }, null, 'GET');
  const scriptOf = (name: string) => nodes[pods.get(name)?.spec?.nodeName ?? ''];
  const client = {
    async create({ plural }: { plural: string }, object: Pod) {
      done.push(`create ${plural} ${object.metadata?.name}`);
      if (plural === 'namespaces') hasNamespace = true;
      else pods.set(object.metadata?.name ?? '', object);
      return object;
    },
    async get({ plural }: { plural: string }, name: string) {
      onRead();
      if (plural === 'namespaces') {
        if (hasNamespace) return {};
        throw missing();
      }
      return { ...pods.get(name), status: scriptOf(name)?.status };
    },
    async delete({ plural }: { plural: string }, name: string) {
      if (plural === 'namespaces' && !hasNamespace) throw missing();
      done.push(`delete ${plural} ${name}`);
      if (plural === 'namespaces') hasNamespace = false;
      return {};
    },
  } as unknown as Client;
  const transport: Transport = async ({ path }) => {
    const name = path.split('/').at(-2) ?? '';
    const text = Buffer.from(scriptOf(name)?.log ?? '');
    return {
      status: 200,
      headers: {},
      body: (async function* () {
        yield text;
      })(),
    };
  };
  return { client, transport, done, pods };
}

const check = (
  { client, transport }: Cluster,
  nodes: readonly string[],
  clock: Clock,
  signal = new AbortController().signal,
) => preflightNodes({ client, transport, image: 'fairlead:1', nodes, clock, signal, onNode: () => {} });

const ROWS: { what: string; script: NodeScript; findings?: number; problem?: RegExp }[] = [
  { what: 'findings', script: answer('Succeeded', JSON.stringify({ findings: [GOOD] })), findings: 1 },
  {
    what: 'findings of which one is a problem, so that the program fails',
    script: answer('Failed', JSON.stringify({ findings: [GOOD, { ...GOOD, level: 'problem' }] })),
    findings: 2,
  },
  {
    what: 'findings among warnings of the runtime',
    script: answer(
      'Succeeded',
      `(node:1) Warning: old\n${JSON.stringify({ findings: [GOOD] }, null, 2)}\nbye\n`,
    ),
    findings: 1,
  },
  {
    what: 'an image of something else',
    script: answer('Failed', 'sh: preflight: not found\n'),
    problem: /printed no findings: sh: preflight: not found; try: --image /,
  },
  { what: 'nothing', script: answer('Failed', ''), problem: /printed no findings: \(nothing\)/ },
  {
    what: 'an image that cannot be pulled',
    script: waiting('ImagePullBackOff', 'Back-off pulling image'),
    problem:
      /does not start: ImagePullBackOff: Back-off pulling image; try: --image .* instead of fairlead:1/,
  },
  {
    what: 'a kubelet that does nothing',
    script: { status: { phase: 'Pending' } },
    problem: /has not ended after 120 s \(Pending\); try: check whether the kubelet/,
  },
];

for (const { what, script, findings = 0, problem } of ROWS) {
  test(`a node whose pod has ${what}`, async () => {
    const clock = manualClock();
    // Each look at the pod takes a while.
    const made = cluster({ n1: script }, () => setImmediate(() => clock.advance(1000)));
    const [result, ...others] = await check(made, ['n1'], clock);
    assert.equal(others.length, 0);
    assert.equal(result?.findings.length, findings);
    if (problem) assert.match(result?.problem ?? '', problem);
    else assert.equal(result?.problem, null);
    assert.equal(made.done.at(-1), `delete namespaces ${PREFLIGHT_NAMESPACE}`);
  });
}

test('each node has a pod, which starts whatever the state of the node; one that fails does not hinder the others', async () => {
  const good = answer('Succeeded', JSON.stringify({ findings: [GOOD] }));
  const made = cluster({ n1: good, n2: waiting('InvalidImageName'), n3: good });
  const results = await check(made, ['n1', 'n2', 'n3'], manualClock());
  const told = ({ node, findings, problem }: NodePreflight) => [node, findings.length, problem !== null];
  assert.deepEqual(results.map(told), [
    ['n1', 1, false],
    ['n2', 0, true],
    ['n3', 1, false],
  ]);
  for (const { spec } of made.pods.values()) {
    assert.equal(spec?.hostNetwork, true);
    assert.deepEqual(spec?.tolerations, [{ operator: 'Exists' }]);
  }
  assert.deepEqual([...made.pods.values()].map(({ spec }) => spec?.nodeName).sort(), ['n1', 'n2', 'n3']);
});

test('after an interruption the namespace is removed', async () => {
  const end = new AbortController();
  const made = cluster({ n1: { status: { phase: 'Running' } } }, () => end.abort(new Error('interrupted')));
  await assert.rejects(check(made, ['n1'], manualClock(), end.signal), /interrupted/);
  assert.equal(made.done.at(-1), `delete namespaces ${PREFLIGHT_NAMESPACE}`);
});

test('nodes with Linux are checked, with the image of the agents', async () => {
  const os = (name: string, value: string) => ({ metadata: { name, labels: { 'kubernetes.io/os': value } } });
  const lists: Readonly<Record<string, readonly object[]>> = {
    nodes: [os('n10', 'linux'), os('n9', 'linux'), os('w1', 'windows')],
    pods: [{ spec: { nodeName: 'n9', containers: [{ image: 'registry/fairlead:1' }] } }],
  };
  const client = (pods: readonly object[]) =>
    ({
      list: async ({ plural }: { plural: string }) => ({ items: plural === 'pods' ? pods : lists[plural] }),
    }) as unknown as Client;
  assert.deepEqual(await nodeTargets(client(lists['pods'] ?? [])), {
    nodes: ['n9', 'n10'],
    image: 'registry/fairlead:1',
    running: ['n9'],
  });
  assert.equal((await nodeTargets(client([]))).image, null);
});

test('cleanup runs on nodes without agents, with the files of the node', async () => {
  const step = { what: 'mode nftables', error: null, hint: null };
  const failed = { what: 'CNI plugin', error: 'EROFS', hint: null };
  const made = cluster({
    n1: answer('Succeeded', JSON.stringify({ steps: [step] })),
    n2: answer('Failed', JSON.stringify({ steps: [step, failed] })),
    n3: answer('Failed', JSON.stringify({ findings: [GOOD] })),
  });
  const { client, transport } = made;
  const signal = new AbortController().signal;
  const clock = manualClock();
  const results = await runOnNodes(
    CLEANUP,
    { client, transport, image: 'fairlead:1', nodes: ['n1', 'n2', 'n3'], clock, signal },
    () => {},
  );
  assert.deepEqual(
    results.map(({ result }) => result),
    [[step], [step, failed], null],
  );
  assert.match(results[2]?.problem ?? '', /--image with an image of this version/);
  const [container] = [...made.pods.values()][0]?.spec?.containers ?? [];
  assert.deepEqual(container?.args, ['cleanup', '--output', 'json', '--node-root', '/node']);
  const root = container.volumeMounts?.find(({ mountPath }) => mountPath === '/node');
  assert.equal(root?.readOnly, undefined);
  assert.equal(made.done.at(-1), 'delete namespaces fairlead-cleanup');
});

test('cleanup is refused on nodes with agents, and only there', () => {
  assert.throws(() => refuseRunningAgents({ running: ['n2', 'n1'] }, ['n1', 'n2', 'n3']), {
    code: 'agent-running',
    message: /an agent runs on n1, n2/,
    hint: /remove the agents first/,
  });
  refuseRunningAgents({ running: ['n2'] }, ['n1']);
});
