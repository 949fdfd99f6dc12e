import assert from 'node:assert/strict';
import type { ClusterState } from '../../src/cluster/state.ts';
import { traceFlow } from '../../src/cluster/trace-flow.ts';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import type { Pod } from '../../src/kube/types.ts';
import { renderExplanation } from '../../src/observe/explain-text.ts';
import type { Leg } from '../../src/trace/hops.ts';
import type { Answer } from '../../src/trace/outcome.ts';
import { renderLookups, renderTrace } from '../../src/trace/trace-text.ts';
import { inContext } from './in-context.ts';

/** A packet to trace, in the scene of question-scene.ts, and its way by the topology of the cluster. */
export interface TracedRow {
  readonly name: string;
  readonly from: string;
  /** NODE2 stands for the node's address. */
  readonly to: string;
  readonly family?: 4 | 6;
  readonly answer: Answer['kind'];
  /** The devices that the request passes, each as "PLACE in|out DEVICE". */
  readonly there: readonly string[];
  /** Modes in which it goes another way; `proxy`: the connection of the proxy, if there is one. */
  readonly thereIn?: Partial<Record<Mode, readonly string[]>>;
  readonly proxy?: readonly string[];
}

const CLIENT = ['pod default/client out eth0', 'node-1 in veth of default/client', 'node-1 in bridge fl0'];
const toPod = (node: string, pod: string) => [
  `${node} out bridge fl0`,
  `${node} out veth of ${pod}`,
  `pod ${pod} in eth0`,
];
const TO_NODE_2 = ['node-1 out uplink eth0', 'node-2 in uplink eth0'];
const TO_LONE = [...TO_NODE_2, ...toPod('node-2', 'default/lone')];
const TO_API = toPod('node-1', 'lab/api-1');
const OUTSIDE = ['outside out eth0', 'node-2 in uplink eth0'];
/** The proxy listens on an address of its node: the connection to it stays on loopback. */
const TO_PROXY = ['node-1 out loopback', 'node-1 in loopback'];

const both = (row: Omit<TracedRow, 'family'>): TracedRow[] =>
  ([4, 6] as const).map((family) => ({ ...row, name: `${row.name}, IPv${family}`, family }));

export const TRACED: readonly TracedRow[] = [
  ...both({
    name: 'a pod to a Service on the same node',
    from: 'client',
    to: 'svc/lab/api',
    answer: 'answered',
    there: [...CLIENT, ...TO_API],
    thereIn: { userspace: CLIENT },
    proxy: TO_API,
  }),
  ...both({
    name: 'a pod to a Service on another node',
    from: 'client',
    to: 'svc/local',
    answer: 'answered',
    there: [...CLIENT, ...TO_LONE],
    thereIn: { userspace: CLIENT },
    proxy: TO_LONE,
  }),
  {
    name: 'a datagram to a pod of another node',
    from: 'client',
    to: 'pod/lone:8080/udp',
    answer: 'answered',
    there: [...CLIENT, ...TO_LONE],
  },
  {
    name: 'the node port of a Service from outside',
    from: 'outside',
    to: 'NODE2:30084',
    answer: 'answered',
    there: [...OUTSIDE, ...toPod('node-2', 'default/lone')],
    thereIn: { userspace: OUTSIDE },
    proxy: toPod('node-2', 'default/lone'),
  },
  {
    name: 'a node to a Service',
    from: 'node/node-1',
    to: 'svc/local',
    answer: 'answered',
    there: TO_LONE,
    thereIn: { userspace: TO_PROXY },
    proxy: TO_LONE,
  },
  {
    name: 'a server that listens on loopback only',
    from: 'client',
    to: 'svc/inner',
    answer: 'refused',
    there: [...CLIENT, ...toPod('node-1', 'default/inner')],
    thereIn: { userspace: CLIENT },
    proxy: toPod('node-1', 'default/inner'),
  },
  {
    name: 'a Service without endpoints',
    from: 'client',
    to: 'svc/typo',
    answer: 'refused',
    there: CLIENT,
    // The program at the socket refuses: no packet is sent.
    thereIn: { ebpf: [] },
  },
  {
    name: 'a pod that a policy isolates',
    from: 'client',
    to: 'svc/guarded',
    answer: 'nothing',
    there: [...CLIENT, ...TO_NODE_2],
    thereIn: { userspace: CLIENT },
    proxy: [],
  },
  {
    name: 'a cluster IP of no Service',
    from: 'client',
    to: '10.96.50.250:80',
    answer: 'nothing',
    there: CLIENT,
  },
  {
    name: 'an address outside without a default route',
    from: 'client',
    to: '198.51.100.9:80',
    answer: 'unreachable',
    there: CLIENT,
  },
];

/** The devices of the first leg there: of the client's packet, or of the proxy's. */
function devicesThere(legs: readonly Leg[], isRelayed: boolean): string[] {
  const leg = legs.find((one) => one.way === 'there' && one.isRelayed === isRelayed);
  return (leg?.hops ?? []).map(({ place, direction, deviceText }) => `${place} ${direction} ${deviceText}`);
}

/** The devices of the answer, as the way of a request to the client: reversed, and each device in the other direction. */
function devicesBack(legs: readonly Leg[], isRelayed: boolean): string[] {
  const leg = legs.find(
    (one) =>
      one.way === 'back' && one.isRelayed === isRelayed && (one.kind === 'SYN-ACK' || one.kind === 'answer'),
  );
  return (leg?.hops ?? [])
    .map(({ place, direction, deviceText }) => `${place} ${direction === 'in' ? 'out' : 'in'} ${deviceText}`)
    .reverse();
}

/** Traces the row's packet, and compares its way with the row's, and each step of explain with the packet. */
export async function checkWay(
  state: ClusterState,
  pods: readonly Pod[],
  mode: Mode,
  row: TracedRow,
): Promise<void> {
  const to = row.to.replace('NODE2', state.nodes[1]?.addresses[0] ?? '');
  const family = row.family === 6 ? 'ipv6' : 'ipv4';
  const { explanation, trace, agreement } = await traceFlow(state, pods, { from: row.from, to, family });
  assert.ok(trace && agreement, renderExplanation(explanation));
  const text = renderTrace(explanation, trace, agreement);
  const there = row.thereIn?.[mode] ?? row.there;
  const isProxied = row.proxy !== undefined && mode === 'userspace';
  const relayed = isProxied ? row.proxy : [];
  const wrong = agreement.steps.filter(({ isRight }) => isRight === false);
  inContext(text, () => {
    assert.equal(trace.answer.kind, row.answer);
    assert.deepEqual(devicesThere(trace.legs, false), there);
    assert.deepEqual(devicesThere(trace.legs, true), relayed);
    if (row.answer === 'answered') {
      assert.deepEqual(devicesBack(trace.legs, false), there);
      assert.deepEqual(devicesBack(trace.legs, true), relayed);
    }
    assert.equal(agreement.isVerdictRight, true);
    assert.deepEqual(wrong, []);
  });
}

/** A name that the pod of FROM resolves, and the questions before its packet. */
export interface LookupRow {
  readonly name: string;
  readonly from: string;
  readonly to: string;
  readonly family: 4 | 6;
  /** The names in the questions, and their results; null: an address of the family. */
  readonly questions: readonly (readonly [name: string, result: string | null])[];
  readonly answer: Answer['kind'];
}

const LOCAL = 'svc.cluster.local';
const WEB: LookupRow['questions'] = [[`web.default.${LOCAL}`, null]];

export const LOOKUPS: readonly LookupRow[] = [
  { name: 'a name', from: 'client', to: 'web', family: 4, questions: WEB, answer: 'answered' },
  { name: 'a name, IPv6', from: 'client', to: 'web', family: 6, questions: WEB, answer: 'answered' },
  {
    name: 'a name of the third place in the search path',
    from: 'client',
    to: 'api.lab.svc',
    family: 4,
    questions: [
      [`api.lab.svc.default.${LOCAL}`, 'NXDOMAIN'],
      [`api.lab.svc.${LOCAL}`, 'NXDOMAIN'],
      [`api.lab.${LOCAL}`, null],
    ],
    answer: 'answered',
  },
  {
    name: 'a name server that does not answer',
    from: 'own-dns',
    to: 'web',
    family: 4,
    questions: [['web', 'no answer']],
    answer: 'nothing',
  },
];

/** Traces a packet to a name, and compares the ways of the questions before it with the topology. */
export async function checkLookups(
  state: ClusterState,
  pods: readonly Pod[],
  { from, to, family, questions, answer }: LookupRow,
): Promise<void> {
  const asked = { from, to, family: family === 6 ? 'ipv6' : 'ipv4' } as const;
  const { explanation, lookups, agreement } = await traceFlow(state, pods, asked);
  const client = pods.find(({ metadata }) => metadata?.namespace === 'default' && metadata.name === from);
  const node = client?.spec?.nodeName;
  const way = [`pod default/${from} out eth0`, `${node} in veth of default/${from}`, `${node} in bridge fl0`];
  const isAddress = (said: string) => /^[0-9a-f.:]+(, [0-9a-f.:]+)*$/.test(said);
  inContext(`${renderLookups(lookups)}${renderExplanation(explanation)}`, () => {
    assert.deepEqual(
      lookups.map(({ name, type, said }) => [name, type, isAddress(said) ? null : said]),
      questions.map(([name, result]) => [name, family === 6 ? 'AAAA' : 'A', result]),
    );
    for (const { trace } of lookups) {
      assert.equal(trace.answer.kind, answer);
      assert.deepEqual(devicesThere(trace.legs, false), way);
      assert.deepEqual(devicesBack(trace.legs, false), answer === 'answered' ? way : []);
    }
    assert.deepEqual(agreement?.steps.filter(({ isRight }) => isRight === false) ?? [], []);
  });
}
