import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import type { ExplainVerdict, Explanation } from '../observe/explanation.ts';
import {
  all,
  ejected,
  everyNodeIn,
  noPodSilenced,
  podSilenced,
  podsReady,
  reaches,
  restarted,
} from './checks.ts';
import type { Check, LessonView } from './lesson.ts';
import { LESSONS } from './lessons.ts';
import { fillIn } from './names.ts';
import { progressIn } from './progress.ts';

const pod = (name: string, change: { ready?: boolean; restarts?: number } = {}): Pod => ({
  metadata: { name, namespace: 'learn', labels: { app: 'web' } },
  spec: { nodeName: 'node-2', containers: [] },
  status: {
    podIP: '10.244.0.7',
    conditions: [{ type: 'Ready', status: change.ready === false ? 'False' : 'True' }],
    containerStatuses: [
      {
        name: 'echo',
        image: 'fairlead',
        imageID: '',
        ready: true,
        restartCount: change.restarts ?? 0,
      },
    ],
  },
});

const explanation = (verdict: ExplainVerdict, step = ''): Explanation => ({
  from: 'a',
  to: 'b',
  packet: null,
  steps: [{ subject: 'endpoints', object: null, ruleOrKey: null, text: step }],
  endpoints: [],
  clientSeen: null,
  verdict,
  reason: '',
  causes: [{ text: 'a policy denies it', object: null, field: null, fix: null }],
  missing: [],
  askNode: null,
});

const view = (change: Partial<LessonView> = {}): LessonView => ({
  pods: [],
  deployments: [],
  services: [],
  policies: [],
  nodes: [{ name: 'node-1', address: '192.168.0.1', mode: 'nftables' }],
  faults: [],
  explained: () => null,
  ...change,
});

const SILENT = [{ kind: 'silent' as const, target: 'learn/web-1' }];
const rows: { what: string; check: Check; view: Partial<LessonView>; missing: string | null }[] = [
  {
    what: 'no pods',
    check: podsReady('web', 1),
    view: {},
    missing: '0 of 1 pods with the label app=web are ready',
  },
  { what: 'a ready pod', check: podsReady('web', 1), view: { pods: [pod('web-1')] }, missing: null },
  {
    what: 'a pod that is not ready',
    check: podsReady('web', 1),
    view: { pods: [pod('web-1', { ready: false })] },
    missing: '0 of 1 pods with the label app=web are ready',
  },
  {
    what: 'more pods than asked for',
    check: podsReady('web', 1),
    view: { pods: [pod('web-1'), pod('web-2')] },
    missing: '2 of 1 pods with the label app=web are ready',
  },
  {
    what: 'a container that was not restarted',
    check: restarted('web'),
    view: { pods: [pod('web-1')] },
    missing: 'the container of pod web-1 has not been restarted',
  },
  {
    what: 'one that was',
    check: restarted('web'),
    view: { pods: [pod('web-1', { restarts: 1 })] },
    missing: null,
  },
  {
    what: 'a node in another mode',
    check: everyNodeIn('ebpf'),
    view: {},
    missing: 'node-1 is in nftables mode',
  },
  { what: 'every node in the mode', check: everyNodeIn('nftables'), view: {}, missing: null },
  {
    what: 'a planted fault of another namespace',
    check: podSilenced('web'),
    view: { pods: [pod('web-1')], faults: [{ kind: 'silent', target: 'shop/web-1' }] },
    missing: 'no pod with the label app=web is silent',
  },
  {
    what: 'a silent pod',
    check: podSilenced('web'),
    view: { pods: [pod('web-1')], faults: SILENT },
    missing: null,
  },
  {
    what: 'a fault that is still planted',
    check: noPodSilenced('web'),
    view: { pods: [pod('web-1')], faults: SILENT },
    missing: 'the pod is still silent',
  },
  {
    what: 'a packet that would be dropped',
    check: reaches('a', 'b'),
    view: { explained: () => explanation('dropped') },
    missing: 'explain a b says dropped: a policy denies it',
  },
  {
    what: 'a packet that would be delivered',
    check: reaches('a', 'b'),
    view: { explained: () => explanation('delivered') },
    missing: null,
  },
  { what: 'a question that fails', check: reaches('a', 'b'), view: {}, missing: 'explain a b fails' },
  {
    what: 'an endpoint that failover has ejected',
    check: ejected({ from: 'a', to: 'b' }),
    view: {
      explained: () => explanation('delivered', 'without 10.244.0.7:8080: ejected by failover after x'),
    },
    missing: null,
  },
  {
    what: 'the first check that is not met',
    check: all(everyNodeIn('nftables'), podsReady('web', 1), everyNodeIn('ebpf')),
    view: {},
    missing: '0 of 1 pods with the label app=web are ready',
  },
];
for (const { what, check, view: change, missing } of rows) {
  test(what, () => assert.equal(check.missing(view(change)), missing));
}

test('commands get the names and addresses of the cluster; what does not exist yet becomes a placeholder', () => {
  const command =
    'fairlead exec {node web} -- ping {address web} {pod web 2} {node-address} {cluster-ip shop}';
  assert.equal(
    fillIn(command, view({ pods: [pod('web-1')] })),
    'fairlead exec node/node-2 -- ping 10.244.0.7 POD 192.168.0.1 CLUSTER_IP',
  );
});

const HOSTILE = [
  '$(touch /tmp/x)',
  '10.0.0.1; id',
  '10.0.0.1\nid',
  '`id`',
  "'",
  '',
  'x'.repeat(300),
  '-rf',
  '--as=admin',
];
for (const ip of HOSTILE)
  test(`what a status says never becomes part of a command unless it can be an address: ${JSON.stringify(ip.slice(0, 20))}`, () => {
    const hostile = { ...pod('web-1'), status: { ...pod('web-1').status, podIP: ip } };
    const command = fillIn('fairlead request http://{address web}:80', view({ pods: [hostile] }));
    assert.equal(command, 'fairlead request http://ADDRESS:80');
  });

const progressRows: [text: string | undefined, done: number | null][] = [
  [undefined, null],
  ['0', 0],
  ['2', 2],
  ['99', LESSONS[0]?.steps.length ?? 0],
  ['two', null],
];
for (const [text, done] of progressRows) {
  test(`progress ${text} is read as ${done}`, () => {
    const [lesson] = LESSONS;
    assert.ok(lesson);
    assert.deepEqual(progressIn({ data: text === undefined ? {} : { [lesson.name]: text } }, lesson), {
      done,
    });
  });
}
