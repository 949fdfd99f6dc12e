import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CaptureBody, CaptureLine } from '../agent/node-capture.ts';
import { tcpFrame } from '../kernel/testing/frames.ts';
import { FairleadError } from '../lib/errors.ts';
import { eventually } from '../lib/testing/eventually.ts';
import type { CapturedFrame } from '../trace/capture.ts';
import { planRemoteCapture, startRemoteCapture } from './remote-capture.ts';
import type { RemoteCluster } from './remote-cluster.ts';

const node = (name: string, address: string) => ({
  metadata: { name },
  status: { addresses: [{ type: 'InternalIP', address }] },
});
const pod = (name: string, nodeName: string, ip: string, hostNetwork = false) => ({
  metadata: { namespace: 'default', name },
  spec: { nodeName, hostNetwork },
  status: { phase: 'Running', podIPs: [{ ip }] },
});
const LISTS: Readonly<Record<string, readonly object[]>> = {
  nodes: [node('n1', '192.0.2.1'), node('n2', '192.0.2.2'), node('n3', '192.0.2.3')],
  pods: [
    pod('client', 'n1', '10.0.0.1'),
    pod('web', 'n2', '10.0.0.2'),
    pod('agent', 'n2', '192.0.2.2', true),
  ],
  services: [{ metadata: { namespace: 'default', name: 'web' }, spec: { clusterIPs: ['10.96.0.9'] } }],
  endpointslices: [
    {
      metadata: { namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } },
      endpoints: [{ addresses: ['10.0.0.2'] }],
    },
  ],
};

const FUTURE = 4_000_000_000_000;

/** A cluster with agents on n1 and n2. */
function cluster(streams: Readonly<Record<string, readonly CaptureLine[] | Error>> = {}): RemoteCluster {
  return {
    agents: ['n1', 'n2'].map((name) => ({ node: name, namespace: 'net', pod: name, port: 1 })),
    client: { list: async ({ plural }: { plural: string }) => ({ items: LISTS[plural] ?? [] }) },
    ended: (name: string) => new FairleadError(`${name} ended`, { op: 'ask', code: 'ended' }),
    async capture(name: string, _body: CaptureBody, signal: AbortSignal) {
      const stream = streams[name] ?? [];
      if (stream instanceof Error) throw stream;
      return (async function* () {
        for (const line of stream) yield Buffer.from(`${JSON.stringify(line)}\n`);
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
      })();
    },
  } as unknown as RemoteCluster;
}

const bodiesOf = async (target: string, filter: string | null = null) => {
  const { bodies } = await planRemoteCapture(cluster(), target, filter, 100);
  return [...bodies].map(([name, { pods, addresses, names }]) => ({
    name,
    pods: pods.map((one) => one.name),
    addresses,
    names,
  }));
};

test('agents capture the addresses of a Service and of its endpoints, at their nodes and pods', async () => {
  const addresses = ['10.96.0.9', '10.0.0.2'];
  assert.deepEqual(await bodiesOf('svc/web'), [
    { name: 'n1', pods: [], addresses, names: {} },
    { name: 'n2', pods: ['default/web'], addresses, names: {} },
  ]);
});

test('a node is captured alone; filters are sent with the addresses of their names', async () => {
  const names = { 'pod/client': ['10.0.0.1'] };
  assert.deepEqual(await bodiesOf('node/n2', 'not host pod/client'), [
    { name: 'n2', pods: [], addresses: null, names },
  ]);
  await assert.rejects(bodiesOf('node/n3'), /no such node: n3/);
  await assert.rejects(bodiesOf('all', 'host pod/nope'), /no such pod: default\/nope/);
});

const device = (name: string): CaptureLine => ({
  type: 'device',
  number: 0,
  place: { kind: 'node', name },
  device: { name: 'eth0', text: 'uplink eth0', isPort: false },
});
const frame = (ms: number): CaptureLine => ({
  type: 'frame',
  number: 0,
  timeNs: String(BigInt(ms) * 1_000_000n),
  direction: 'in',
  length: 60,
  data: Buffer.from(tcpFrame('10.0.0.1:4000 > 10.96.0.9:80')).toString('base64'),
});

test('frames of several nodes come in the order of their times, from devices with numbers of their own', async () => {
  const lost = (count: number): CaptureLine => ({ type: 'lost', count });
  // Frames of the future wait until the capture is closed.
  const frames = [1, 2, 3, 4].map((ms) => frame(FUTURE + ms));
  const start: CaptureLine = { type: 'start', tunnelPort: null };
  const of = (name: string, ...list: (CaptureLine | undefined)[]) => [
    start,
    device(name),
    ...list.flatMap((one) => one ?? []),
    lost(5),
  ];
  const opened = cluster({ n1: of('n1', frames[0], frames[3]), n2: of('n2', frames[1], frames[2]) });
  const plan = await planRemoteCapture(opened, 'all', null, 100);
  const seen: CapturedFrame[] = [];
  const devices: string[] = [];
  const capture = startRemoteCapture(opened, plan, {
    onDevice: ({ name }, { text }, number) => devices.push(`${number} ${name} ${text}`),
    onFrame: (one) => seen.push(one),
    onProblem: assert.fail,
  });
  let sum = 0;
  await eventually(() => {
    sum += capture.lost();
    return sum === 10;
  });
  capture.close();
  assert.deepEqual(
    seen.map(({ place, frame: { timeNs }, packet }) => [
      Number(timeNs / 1_000_000n) - FUTURE,
      place.name,
      packet?.destination,
    ]),
    [
      [1, 'n1', '10.96.0.9'],
      [2, 'n2', '10.96.0.9'],
      [3, 'n2', '10.96.0.9'],
      [4, 'n1', '10.96.0.9'],
    ],
  );
  assert.deepEqual(devices.map((text) => text.slice(2)).sort(), ['n1 uplink eth0', 'n2 uplink eth0']);
  assert.equal(new Set(devices.map((text) => text[0])).size, 2);
  await capture.ended;
});

test('a node that fails is reported, and the others continue; if all fail, the capture does', async () => {
  const plan = await planRemoteCapture(cluster(), 'all', null, 100);
  const problems: string[] = [];
  const options = {
    onDevice: () => {},
    onFrame: () => {},
    onProblem: (name: string, problem: string) => problems.push(`${name}: ${problem}`),
  };
  const failed: CaptureLine = { type: 'error', message: 'no more sockets' };
  const capture = startRemoteCapture(cluster({ n1: [failed], n2: new Error('aborted') }), plan, options);
  await assert.rejects(capture.ended);
  // A broken connection is reported.
  assert.match(problems.join(), /^n1: no more sockets$|^n2: n2 ended$/);
  capture.close();
});
