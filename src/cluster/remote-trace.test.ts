import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { TraceLine } from '../agent/node-trace.ts';
import type { TraceBody } from '../agent/trace-body.ts';
import { readFrame } from '../kernel/packet.ts';
import { tcpFrame } from '../kernel/testing/frames.ts';
import type { Node, Pod } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { SocketResult } from '../trace/outcome.ts';
import { packetLine } from '../trace/packet-line.ts';
import type { RemoteCluster } from './remote-cluster.ts';
import { planRemoteTrace, traceRemotely } from './remote-trace.ts';
import { planRemoteWatch } from './remote-watch.ts';

const pod = (name: string, nodeName: string, ip: string, hostNetwork = false) =>
  ({
    metadata: { namespace: 'default', name },
    spec: { nodeName, hostNetwork },
    status: { phase: 'Running', podIPs: [{ ip }] },
  }) as unknown as Pod;
const node = (name: string, address: string) =>
  ({ metadata: { name }, status: { addresses: [{ type: 'InternalIP', address }] } }) as unknown as Node;

const PODS = [
  pod('client', 'n1', '10.1.0.2'),
  pod('web', 'n2', '10.2.0.2'),
  pod('near', 'n1', '10.1.0.3'),
  pod('host', 'n1', '192.0.2.1', true),
  pod('far', 'n9', '10.9.0.2'),
];
const NODES = [
  node('n1', '192.0.2.1'),
  node('n2', '192.0.2.2'),
  node('n3', '192.0.2.3'),
  node('n9', '192.0.2.9'),
];
const AGENTS = ['n1', 'n2', 'n3'];

const endpoint = (address: string) => ({
  ...{ address, port: 8080, pod: 'default/web', node: 'n2', odds: 1, terminating: false },
  ...{
    masquerade: false,
    hairpin: false,
    nextHop: 'route to n2',
    arrival: 'answered',
    clientSeen: '10.1.0.2',
  },
});
const explanation = (
  changes: Partial<Explanation> = {},
  to: readonly string[] = ['10.2.0.2'],
): Explanation => ({
  from: 'pod default/client',
  to: 'web',
  packet: {
    ...{ source: '10.1.0.2', sourceClass: 'pod', destination: '10.96.0.1', port: 80 },
    ...{ protocol: 'TCP', node: 'n1' },
  },
  steps: [{ subject: 'entry', object: 'Node n1', ruleOrKey: null, text: '' }],
  endpoints: to.map(endpoint) as Explanation['endpoints'],
  clientSeen: null,
  verdict: 'delivered',
  reason: '',
  causes: [],
  missing: [],
  askNode: null,
  ...changes,
});

describe('who observes a packet', () => {
  const rows: readonly {
    readonly name: string;
    readonly said: Explanation;
    readonly origin?: readonly [place: string, node: string, pod: string | null];
    readonly nodes?: Readonly<Record<string, readonly string[]>>;
    readonly leftOut?: readonly string[];
    readonly refused?: RegExp;
  }[] = [
    {
      name: 'the nodes of the client and of an endpoint',
      said: explanation(),
      nodes: { n1: ['default/client'], n2: ['default/web'] },
    },
    {
      name: 'an endpoint on the same node',
      said: explanation({}, ['10.1.0.3']),
      nodes: { n1: ['default/client', 'default/near'] },
    },
    {
      name: 'a node that the packet enters on its way',
      said: explanation({ steps: [{ subject: 'entry', object: 'Node n3', ruleOrKey: null, text: '' }] }),
      nodes: { n1: ['default/client'], n3: [], n2: ['default/web'] },
    },
    {
      name: "another node's own address",
      said: explanation(
        { packet: { ...explanation().packet, destination: '192.0.2.3' } as Explanation['packet'] },
        [],
      ),
      nodes: { n1: ['default/client'], n3: [] },
    },
    {
      name: 'a node without an agent',
      said: explanation({}, ['10.2.0.2', '10.9.0.2']),
      nodes: { n1: ['default/client'], n2: ['default/web'] },
      leftOut: ['n9'],
    },
    {
      name: 'a client in the network of its node',
      said: explanation({ from: 'pod default/host' }),
      origin: ['n1', 'n1', null],
      nodes: { n1: [], n2: ['default/web'] },
    },
    {
      name: 'a node as the client',
      said: explanation({
        from: 'node n2',
        packet: { ...explanation().packet, node: 'n2' } as Explanation['packet'],
        steps: [],
      }),
      origin: ['n2', 'n2', null],
      nodes: { n2: ['default/web'] },
    },
    {
      name: 'a client that is an address',
      said: explanation({ from: '10.1.0.77' }),
      refused: /cannot be sent from 10\.1/,
    },
    {
      name: 'a client on a node without an agent',
      said: explanation({ from: 'pod default/far' }),
      refused: /no agent runs on its node, n9/,
    },
  ];
  for (const { name, said, origin, nodes, leftOut = [], refused } of rows) {
    test(name, () => {
      const make = () => planRemoteTrace(AGENTS, { pods: PODS, nodes: NODES }, said);
      if (refused) return assert.throws(make, refused);
      const plan = make();
      const [place, at, from] = origin ?? ['pod default/client', 'n1', 'default/client'];
      assert.deepEqual(plan.origin, { place, node: at, pod: from });
      const observed = [...plan.nodes].map(([one, pods]) => [one, pods.map((each) => each.name)]);
      assert.deepEqual(Object.fromEntries(observed), nodes);
      assert.equal(observed[0]?.[0], at, 'the client first');
      assert.deepEqual(plan.leftOut, leftOut);
    });
  }
});

test('a watched Service is observed at the nodes and pods of its endpoints first', () => {
  const service = {
    metadata: { namespace: 'default', name: 'web' },
    spec: { clusterIPs: ['10.96.0.1'], ports: [{ nodePort: 30080 }] },
  };
  const slice = {
    metadata: { namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } },
    endpoints: [{ addresses: ['10.2.0.2'] }],
  };
  const many = Array.from({ length: 40 }, (_, i) => `m${i}`);
  const plan = planRemoteWatch([...many, ...AGENTS], service as never, PODS, [slice as never]);
  const [[first, body] = []] = plan.bodies;
  assert.equal(first, 'n2');
  assert.deepEqual(
    body?.pods.map(({ name }) => name),
    ['default/web'],
  );
  assert.deepEqual(body?.watched, { addresses: ['10.96.0.1', '10.2.0.2'], ports: [30080] });
  assert.deepEqual([plan.service, plan.bodies.size, plan.leftOut.length], ['default/web', 32, 11]);
});

/** The sightings of a node's agent, by its own clock. */
interface Seen {
  readonly devices: readonly (readonly [place: string, device: string])[];
  /** "PLACE in|out DEVICE": addresses, hop limit, microseconds. */
  readonly frames: readonly (readonly [
    at: string,
    way: string,
    limit: number,
    us: number,
    flags?: 'SYN-ACK' | 'RST',
  ])[];
  readonly aheadUs?: number;
  readonly result?: SocketResult;
  /** An error, the end of its stream, or of the connection. */
  readonly fails?: Error | 'ends' | 'breaks-off';
}

const ASKED = '10.1.0.2:4000 > 10.96.0.1:80';
const SENT = '10.1.0.2:4000 > 10.2.0.2:8080';
const ANSWERED = '10.2.0.2:8080 > 10.1.0.2:4000';
const RESTORED = '10.96.0.1:80 > 10.1.0.2:4000';
const N1_DEVICES = [
  ['pod default/client', 'eth0'],
  ['n1', 'veth'],
  ['n1', 'eth0'],
] as const;
const N2_DEVICES = [
  ['n2', 'eth0'],
  ['n2', 'veth'],
  ['pod default/web', 'eth0'],
] as const;
const N1: Seen = {
  devices: N1_DEVICES,
  frames: [
    ['pod default/client out eth0', ASKED, 64, 0],
    ['n1 in veth', ASKED, 64, 3],
    ['n1 out eth0', SENT, 63, 20],
    ['n1 in eth0', ANSWERED, 63, 75, 'SYN-ACK'],
    ['n1 out veth', RESTORED, 62, 80, 'SYN-ACK'],
    ['pod default/client in eth0', RESTORED, 62, 81, 'SYN-ACK'],
  ],
  result: 'connected',
};
const N2: Seen = {
  devices: N2_DEVICES,
  frames: [
    ['n2 in eth0', SENT, 63, 30],
    ['n2 out veth', SENT, 62, 35],
    ['pod default/web in eth0', SENT, 62, 36],
    ['pod default/web out eth0', ANSWERED, 64, 50, 'SYN-ACK'],
    ['n2 in veth', ANSWERED, 64, 52, 'SYN-ACK'],
    ['n2 out eth0', ANSWERED, 63, 60, 'SYN-ACK'],
  ],
  aheadUs: 5_000_000,
};
const N1_LONELY: Seen = { ...N1, frames: N1.frames.slice(0, 3), result: { error: 'ETIMEDOUT' } };

const nowNs = () => BigInt(Date.now()) * 1_000_000n;

/** The lines of an agent: those that it sees once the packet is sent come after `sent` has resolved. */
async function* linesOf(
  seen: Seen,
  body: TraceBody,
  sent: PromiseWithResolvers<void>,
  sentNs: bigint,
  signal: AbortSignal,
) {
  const text = (line: TraceLine) => Buffer.from(`${JSON.stringify(line)}\n`);
  const ahead = BigInt(seen.aheadUs ?? 0) * 1000n;
  for (const [number, [place, device]] of seen.devices.entries()) {
    const kind = place.startsWith('pod ') ? 'pod' : 'node';
    yield text({
      type: 'device',
      number,
      place: { kind, name: place },
      device: { name: device, text: device, isPort: false },
    });
  }
  yield text({ type: 'start', timeNs: String(nowNs() + ahead) });
  if (body.send) sent.resolve();
  await sent.promise;
  const sequence = body.packet?.protocol === 'TCP' ? body.packet.sequence : 0;
  for (const [at, way, limit, us, flags] of seen.frames) {
    const [direction = '', device = ''] = at.split(' ').slice(-2);
    const place = at.slice(0, -` ${direction} ${device}`.length);
    const number = seen.devices.findIndex((one) => one[0] === place && one[1] === device);
    const frame = tcpFrame(way, flags ? { flags, sequence: 77, acknowledgment: sequence + 1 } : { sequence });
    frame[22] = limit;
    const packet = readFrame(frame, null);
    assert.ok(packet && number >= 0, at);
    yield text({
      type: 'sighting',
      number,
      timeNs: String(sentNs + ahead + BigInt(us) * 1000n),
      direction: direction as 'in' | 'out',
      packet: packetLine(packet, null),
    });
  }
  if (seen.result) yield text({ type: 'result', result: seen.result });
  const counters = [{ place: 'n2', name: 'Ip InDiscards', by: 1, text: 'dropped' }];
  for (let i = 0; !signal.aborted; i++) {
    if (seen.fails === 'ends' && i > 0) return;
    if (seen.fails === 'breaks-off' && i > 0) throw new Error('aborted');
    yield text({ type: 'tick', counters: i === 0 ? counters : [], lost: 0 });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function cluster(agents: Readonly<Record<string, Seen>>, said = explanation()) {
  const sent = Promise.withResolvers<void>();
  const sentNs = nowNs();
  const opened: string[] = [];
  const ended: string[] = [];
  const opens = {
    agents: AGENTS.map((name) => ({ node: name, namespace: 'net', pod: name, port: 1 })),
    client: { list: async ({ plural }: { plural: string }) => ({ items: plural === 'pods' ? PODS : NODES }) },
    ended: (name: string) => new FairleadError(`${name} ended`, { op: 'ask', code: 'ended' }),
    explain: async () => said,
    ask: async () => ({ mode: 'nftables' }),
    async trace(name: string, body: TraceBody, signal: AbortSignal) {
      opened.push(body.send ? `${name} sends` : name);
      const seen = agents[name];
      if (!seen || seen.fails instanceof Error) throw seen?.fails ?? new Error(`no agent ${name}`);
      signal.addEventListener('abort', () => ended.push(name));
      return linesOf(seen, body, sent, sentNs, signal);
    },
  } as unknown as RemoteCluster;
  return { opens, opened, ended };
}

const QUESTION = { from: 'client', to: 'svc/web', family: null };
const hopsOf = (result: Awaited<ReturnType<typeof traceRemotely>>, way: 'there' | 'back') =>
  result.trace?.legs
    .filter((leg) => leg.way === way)
    .flatMap(({ hops }) => hops.map(({ place, direction, device }) => `${place} ${direction} ${device}`));

test('the packet is sent once all nodes observe, and its hops are in their true order whatever their clocks say', async () => {
  const { opens, opened, ended } = cluster({ n1: N1, n2: N2 });
  const result = await traceRemotely(opens, QUESTION, assert.fail);
  assert.deepEqual(opened, ['n2', 'n1 sends']);
  assert.deepEqual(
    hopsOf(result, 'there'),
    [...N1.frames.slice(0, 3), ...N2.frames.slice(0, 3)].map(([at]) => at),
  );
  assert.deepEqual(
    hopsOf(result, 'back'),
    [...N2.frames.slice(3), ...N1.frames.slice(3)].map(([at]) => at),
  );
  assert.deepEqual(result.trace?.answer, { kind: 'answered' });
  assert.equal(result.trace?.answeredAfterMs, 0.081);
  const [clock] = result.trace?.clocks ?? [];
  assert.deepEqual(
    [clock?.machine, clock?.by, Math.round(Number(clock?.shiftUs) / 1000)],
    ['n2', 'both-ways', 5000],
  );
  assert.equal(result.agreement?.isVerdictRight, true);
  assert.deepEqual(ended.sort(), ['n1', 'n2'], 'no observer is left');
});

test('a packet that gets no answer ends where it was last seen, with the counters of that place', async () => {
  const { opens } = cluster({ n1: N1_LONELY, n2: { ...N2, frames: N2.frames.slice(0, 2) } });
  const { trace } = await traceRemotely(opens, QUESTION, assert.fail, () => 300);
  assert.deepEqual(trace?.answer, { kind: 'nothing', last: { place: 'n2', device: 'veth' } });
  assert.deepEqual(
    trace?.counters.map(({ name }) => name),
    ['Ip InDiscards'],
  );
  assert.equal(trace?.clocks[0]?.by, 'one-way');
});

test('a node that does not observe is said, and the trace goes on', async () => {
  for (const fails of [
    new FairleadError('busy', { op: 'ask', code: 'not-ready' }),
    'ends',
    'breaks-off',
  ] as const) {
    const problems: string[] = [];
    const { opens } = cluster({ n1: N1, n2: { ...N2, fails } });
    const { trace } = await traceRemotely(opens, QUESTION, (name, text) => problems.push(`${name}: ${text}`));
    assert.deepEqual(trace?.answer, { kind: 'answered' });
    assert.equal(problems.length, 1, problems.join());
    assert.match(problems[0] ?? '', typeof fails === 'string' ? /^n2: n2 ended/ : /^n2: not observed: busy/);
  }
});

describe('a trace is refused', () => {
  const forbidden = new FairleadError('may not update', { op: 'ask', code: 'Forbidden' });
  const rows: readonly {
    readonly name: string;
    readonly agents?: Readonly<Record<string, Seen>>;
    readonly said?: Explanation;
    readonly question?: Partial<typeof QUESTION>;
    readonly refused: RegExp;
  }[] = [
    {
      name: 'without the right',
      agents: { n1: N1, n2: { ...N2, fails: forbidden } },
      refused: /may not update/,
    },
    {
      name: "if the client's agent fails",
      agents: {
        n1: { ...N1, fails: new FairleadError('no such namespace', { op: 'ask', code: 'ENOENT' }) },
        n2: N2,
      },
      refused: /no such namespace/,
    },
    {
      name: "if the client's agent ends",
      agents: { n1: { ...N1_LONELY, fails: 'breaks-off' }, n2: N2 },
      refused: /n1 ended/,
    },
    { name: 'from outside', question: { from: 'outside' }, refused: /FROM is outside, where no agent runs/ },
    {
      name: 'from a client outside',
      question: { from: 'outside@198.51.100.7' },
      refused: /FROM is outside, where no agent runs/,
    },
    { name: 'to outside', question: { to: 'outside:80' }, refused: /TO is outside/ },
    {
      name: 'with SCTP',
      said: explanation({ packet: { ...explanation().packet, protocol: 'SCTP' } as Explanation['packet'] }),
      refused: /SCTP cannot be traced/,
    },
  ];
  for (const { name, agents = {}, said, question, refused } of rows) {
    test(name, async () => {
      const { opens, opened, ended } = cluster(agents, said);
      await assert.rejects(
        traceRemotely(opens, { ...QUESTION, ...question }, () => {}),
        refused,
      );
      if (opened.length > 0) assert.ok(ended.length <= opened.length);
    });
  }
});
