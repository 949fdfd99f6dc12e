import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { TracedFlow } from '../../cluster/trace-flow.ts';
import type { Hop, Leg } from '../../trace/hops.ts';
import { drawPath, rawTextCommand } from './path-picture.ts';

const hop = (place: string, deviceText: string, extra: Partial<Hop> = {}): Hop => ({
  sinceUs: 0,
  place,
  device: 'eth0',
  deviceText,
  direction: 'out',
  source: { ip: '10.244.0.2', port: 40000 },
  destination: { ip: '10.96.0.60', port: 80 },
  tunnel: null,
  changes: [],
  ...extra,
});
const leg = (kind: Leg['kind'], way: Leg['way'], hops: readonly Hop[]): Leg => ({
  ...{ way, kind, error: null, isRelayed: false, repeatsUs: [] },
  hops,
});
const NFT =
  'nft: table ip fairlead, chain prerouting → chain from-pod, map services, element 10.96.0.60 . tcp . 80';
const change = (by: readonly string[]) =>
  ({ field: 'destination', before: '10.96.0.60:80', after: '10.244.1.2:8080', by }) as const;

const traceOf = (legs: readonly Leg[]) => ({ legs }) as unknown as NonNullable<TracedFlow['trace']>;
const draw = (legs: readonly Leg[]) => drawPath({ trace: traceOf(legs), lookups: [] });

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
  assert.deepEqual(drawPath({ trace: null, lookups: [] }), { boxes: [], steps: [] });
});

test('a question to a name server has a picture of its own', () => {
  const trace = traceOf([
    leg('datagram', 'there', [hop('pod default/client', 'eth0'), hop('node-1', 'bridge fl0')]),
    leg('answer', 'back', [hop('node-1', 'bridge fl0'), hop('pod default/client', 'eth0')]),
  ]);
  const lookup = {
    name: 'web.default.svc.cluster.local',
    type: 'A',
    server: '10.96.0.10',
    said: '10.96.0.1',
    trace,
  } as const;
  const { boxes, steps } = drawPath({ trace: null, lookups: [lookup] }, 0);
  assert.deepEqual(
    boxes.map(({ place }) => place),
    ['pod default/client', 'node-1'],
  );
  assert.deepEqual(
    [...new Set(steps.map(({ packet }) => packet))],
    ['DNS query to the server', 'DNS answer to the client'],
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
