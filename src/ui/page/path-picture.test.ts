import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Leg } from '../../trace/hops.ts';
import { drawPath, rawTextCommand } from './path-picture.ts';
import {
  CLIENT,
  DRAWN_MODES,
  type DrawnMode,
  flowOf,
  flowThrough,
  hopAt as hop,
  LISTENER,
  legAt as leg,
  SERVICE,
} from './testing/drawn-flows.ts';

const NFT =
  'nft: table ip fairlead, chain prerouting → chain from-pod, map services, element 10.96.0.60 . tcp . 80';
const change = (by: readonly string[]) =>
  ({ field: 'destination', before: '10.96.0.60:80', after: '10.244.1.2:8080', by }) as const;

const draw = (legs: readonly Leg[]) => drawPath(flowOf(legs));

test('a path over a tunnel: boxes in the order of the way, rules where they translate, and the way back', () => {
  const tunnel = { source: '172.30.0.11', destination: '172.30.0.12' };
  const { boxes, steps } = draw([
    leg('SYN', 'there', [
      hop('pod default/client', 'eth0'),
      hop('node-1', 'veth of default/client', { direction: 'in' }),
      hop('node-1', 'uplink eth0', { tunnel, changes: [change([NFT])] }),
      hop('pod default/web', 'eth0', { direction: 'in' }),
    ]),
    leg('SYN-ACK', 'back', [
      hop('pod default/web', 'eth0'),
      hop('node-1', 'veth of default/client', { changes: [change([])] }),
    ]),
  ]);
  assert.deepEqual(
    boxes.map(({ place, kind, stops }) => [place, kind, ...stops.map(({ label }) => label)]),
    [
      ['pod default/client', 'pod', 'eth0'],
      [
        'node-1',
        'node',
        'veth of default/client',
        'nf_tables rules',
        'uplink eth0, in VXLAN',
        'connection tracking',
      ],
      ['pod default/web', 'pod', 'eth0'],
    ],
  );
  assert.deepEqual(
    steps.map(({ packet, hop: at }) => `${packet} ${at === null ? 'changed' : at.deviceText}`),
    [
      ...[
        'SYN to the server eth0',
        'SYN to the server veth of default/client',
        'SYN to the server changed',
        'SYN to the server uplink eth0',
        'SYN to the server eth0',
      ],
      ...[
        'SYN-ACK to the client eth0',
        'SYN-ACK to the client changed',
        'SYN-ACK to the client veth of default/client',
      ],
    ],
  );
});

test('a name that does not resolve has an empty picture', () => {
  assert.deepEqual(drawPath({ ...flowOf([]), trace: null }), { boxes: [], steps: [] });
});

test('a question to a name server has a picture of its own', () => {
  const { trace } = flowOf([
    leg('datagram', 'there', [hop('pod default/client', 'eth0'), hop('node-1', 'bridge fl0')]),
    leg('answer', 'back', [hop('node-1', 'bridge fl0'), hop('pod default/client', 'eth0')]),
  ]);
  const lookup = {
    name: 'web.default.svc.cluster.local',
    type: 'A',
    server: '10.96.0.10',
    said: '10.96.0.1',
    trace: trace as NonNullable<typeof trace>,
  } as const;
  const { boxes, steps } = drawPath({ ...flowOf([]), trace: null, lookups: [lookup] }, 0);
  assert.deepEqual(
    boxes.map(({ place }) => place),
    ['pod default/client', 'node-1'],
  );
  assert.deepEqual(
    [...new Set(steps.map(({ packet }) => packet))],
    ['DNS query to the server', 'DNS answer to the client'],
  );
});

/** The translator of each mode, its place, and how often the client's packet passes it. */
const MECHANISMS: Readonly<Record<DrawnMode, readonly string[]>> = {
  nftables: ['node-1 | tables nf_tables rules'],
  ebpf: ['pod default/client | tables BPF program'],
  iptables: ['node-1 | tables iptables rules'],
  ipvs: ['node-1 | tables IPVS'],
  userspace: [
    'node-1 | tables nf_tables rules',
    'node-1 | proxy fairlead proxy (process 9443), listener tcp 172.30.0.11:43317',
    'node-1 | proxy fairlead proxy (process 9443), listener tcp 172.30.0.11:43317',
  ],
};
for (const mode of DRAWN_MODES)
  for (const nodes of [1, 2, 3])
    test(`${mode}, ${nodes} nodes: the picture has the stations of the trace, and what translates between them`, () => {
      const flow = flowThrough(mode, { nodes, isTunnelled: false, isDirect: false });
      const { steps, boxes } = drawPath(flow);
      const legs = flow.trace?.legs ?? [];
      assert.deepEqual(
        steps.flatMap(({ hop, place }) => (hop ? [`${place} ${hop.deviceText}`] : [])),
        legs.flatMap(({ hops }) => hops.map(({ place, deviceText }) => `${place} ${deviceText}`)),
      );
      const there = steps.filter(({ way, hop }) => way === 'there' && hop === null);
      assert.deepEqual(
        there.map(({ stop }) => stop),
        MECHANISMS[mode],
      );
      // Every stop of the picture is passed.
      const drawn = boxes.flatMap(({ stops }) => stops.map(({ id }) => id));
      assert.deepEqual(new Set(drawn), new Set(steps.map(({ stop }) => stop)));
    });

test('userspace mode: two connections, and what the proxy does with each', () => {
  const { steps } = drawPath(flowThrough('userspace', { nodes: 2, isTunnelled: false, isDirect: false }));
  const titles = [...new Set(steps.map(({ connection, packet }) => `${connection}: ${packet}`))];
  assert.deepEqual(titles, [
    'client: SYN to the proxy',
    'client: SYN-ACK to the client',
    'proxy: SYN to the server',
    'proxy: SYN-ACK to the proxy',
  ]);
  const atProxy = steps.flatMap(({ stop, packet }, i) => (stop.includes('| proxy ') ? [[packet, i]] : []));
  const first = (packet: string) => steps.findIndex((one) => one.packet === packet);
  const last = (packet: string) => steps.findLastIndex((one) => one.packet === packet);
  assert.deepEqual(atProxy, [
    ['SYN to the proxy', last('SYN to the proxy')],
    ['SYN-ACK to the client', first('SYN-ACK to the client')],
    ['SYN to the server', first('SYN to the server')],
    ['SYN-ACK to the proxy', last('SYN-ACK to the proxy')],
  ]);
  const redirected = steps.find(({ stop }) => stop.endsWith('nf_tables rules'));
  assert.deepEqual(
    redirected?.changes.map(({ before, after }) => [before, after]),
    [['10.96.0.60:80', '172.30.0.11:43317']],
  );
});

test('userspace mode: a packet that was lost before the proxy has no proxy in its picture', () => {
  const flow = flowOf([leg('SYN', 'there', [hop('pod default/client', 'eth0')])], [LISTENER]);
  const { boxes, steps } = drawPath(flow);
  assert.deepEqual(
    boxes.flatMap(({ stops }) => stops.map(({ label }) => label)),
    ['eth0'],
  );
  assert.equal(steps[0]?.packet, 'SYN to the server');
});

test('userspace mode: a datagram changes its ends at the proxy, on both ways', () => {
  const sent = { source: { ip: '172.30.0.11', port: 50000 }, destination: { ip: '10.244.0.2', port: 8080 } };
  const by = [LISTENER.replace(' tcp ', ' udp ')];
  const { steps } = drawPath(
    flowOf(
      [
        leg('datagram', 'there', [
          hop('pod default/client', 'eth0'),
          hop('node-1', 'bridge fl0'),
          hop('node-1', 'uplink eth0', { ...sent, changes: [change(by)] }),
        ]),
        leg('answer', 'back', [
          hop('node-1', 'uplink eth0', { source: sent.destination, destination: sent.source }),
          hop('node-1', 'bridge fl0', { source: SERVICE, destination: CLIENT, changes: [change([])] }),
        ]),
      ],
      by,
    ),
  );
  assert.deepEqual(
    steps.map(
      ({ packet, stop }) => `${packet}, ${stop.replace(/^.* \| (\w+) (?:fairlead )?/, '$1 ').slice(0, 18)}`,
    ),
    [
      'datagram to the proxy, device eth0',
      'datagram to the proxy, device bridge fl0',
      'datagram to the proxy, tables connection ',
      'datagram to the server, proxy proxy (proce',
      'datagram to the server, device uplink eth0',
      'answer to the proxy, device uplink eth0',
      'answer to the client, proxy proxy (proce',
      'answer to the client, device bridge fl0',
    ],
  );
});

describe('the command that prints an object', () => {
  const rows = [
    {
      object: NFT,
      place: 'node-1',
      command: './fairlead exec node/node-1 -- nft list map ip fairlead services',
    },
    {
      object: 'nft: table ip6 fairlead, chain masq-nonpod-pick-3',
      place: 'node-1',
      command: './fairlead exec node/node-1 -- nft list chain ip6 fairlead masq-nonpod-pick-3',
    },
    { object: NFT, place: 'pod default/client', command: null },
    { object: 'bpf: map services', place: 'node-1', command: null },
  ];
  for (const { object, place, command } of rows) {
    test(`${object} at ${place}`, () => assert.equal(rawTextCommand(object, place, './fairlead'), command));
  }
});
