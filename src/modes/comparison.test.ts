import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import { goldenServices } from '../dataplane/testing/golden-services.ts';
import { endpoint, frontend, NODE, serviceMap } from '../dataplane/testing/service-map.ts';
import type { Frontend, NodeView, ServiceMap } from '../service/model.ts';
import { type CompareOptions, compareModes, type ModeComparison, type ModeFacts } from './comparison.ts';
import { renderComparison } from './comparison-text.ts';
import { counted } from './rendering.ts';

const NO_IPVS = { reason: 'this kernel does not support IPVS', fix: 'load it with "modprobe ip_vs"' };

function compare(map: ServiceMap, name: string, change: Partial<CompareOptions> = {}): ModeComparison {
  const comparison = compareModes({
    map,
    namespace: 'shop',
    name,
    inUse: 'nftables',
    nodeIn: () => map.node,
    listenerOf: () => null,
    unavailable: new Map([['ipvs', NO_IPVS]]),
    drifts: [],
    ...change,
  });
  assert.ok(comparison, name);
  return comparison;
}

function factsOf({ modes }: ModeComparison, mode: Mode): ModeFacts {
  const found = modes.find((one) => one.mode === mode);
  assert.ok(found, mode);
  return found;
}

/** A Service among 200 others, on a cluster IP. */
function among(change: Partial<Parameters<typeof frontend>[0]>, node: Partial<NodeView> = {}): ServiceMap {
  const others: Frontend[] = Array.from({ length: 200 }, (_, i) =>
    frontend({
      kind: 'ClusterIP',
      service: `other-${i}`,
      address: `10.96.1.${i}`,
      port: 80,
      endpoints: [endpoint(`10.244.3.${i}`, 80)],
    }),
  );
  const own = frontend({
    kind: 'ClusterIP',
    service: 'web',
    address: '10.96.1.77',
    port: 8080,
    endpoints: [],
    ...change,
  });
  return serviceMap([...others, own], { ...NODE, ...node });
}

const pods = (count: number) =>
  Array.from({ length: count }, (_, i) => endpoint(`10.244.${1 + (i >> 8)}.${i & 255}`, 8080));

describe('the text', () => {
  for (const [name, whole] of [
    ['plain', true],
    ['sticky', true],
    ['restricted', false],
    ['local', false],
    ['empty', false],
  ] as const) {
    /** `node --test --test-update-snapshots FILE` updates the files. */
    test(`of Service ${name} equals golden/${name}.txt and fits 80 columns`, (t) => {
      const text = renderComparison(compare(goldenServices(), name), { whole });
      t.assert.fileSnapshot(text, join(import.meta.dirname, 'golden', `${name}.txt`), {
        serializers: [String],
      });
      assert.deepEqual(
        text.split('\n').filter((line) => line.length > 80),
        [],
      );
    });
  }
});

describe('the lookups of a first packet', () => {
  const ROWS: readonly {
    what: string;
    map: ServiceMap;
    expected: Readonly<Partial<Record<Mode, readonly [least: number, most: number]>>>;
  }[] = [
    {
      what: 'one endpoint: only iptables compares rules',
      map: among({ endpoints: pods(1) }),
      expected: { nftables: [4, 4], ebpf: [3, 3], ipvs: [5, 5], userspace: [3, 3], iptables: [26, 26] },
    },
    {
      what: '100 endpoints: a rule for each in iptables, a few more draws in nftables',
      map: among({ endpoints: pods(100) }),
      expected: { nftables: [4, 7], ebpf: [3, 3], ipvs: [5, 5], userspace: [3, 3], iptables: [26, 125] },
    },
    {
      what: 'affinity: the last endpoint is looked up first',
      map: among({ endpoints: pods(2), affinitySeconds: 600 }),
      expected: { nftables: [4, 5], ebpf: [4, 4], iptables: [30, 31] },
    },
    {
      what: 'no endpoints: refused',
      map: among({}),
      expected: { nftables: [3, 3], ebpf: [1, 1], ipvs: [3, 3], userspace: [2, 2], iptables: [1, 1] },
    },
    {
      what: 'a scheduler that compares all endpoints',
      map: among({ endpoints: pods(50) }, { ipvsScheduler: 'lc' }),
      expected: { ipvs: [54, 54] },
    },
  ];
  for (const { what, map, expected } of ROWS) {
    test(what, () => {
      const comparison = compare(map, 'web');
      const seen = Object.keys(expected).map((mode) => {
        const { least, most } = factsOf(comparison, mode as Mode).firstPacket;
        return [mode, [least, most]];
      });
      assert.deepEqual(Object.fromEntries(seen), expected);
    });
  }
});

describe('the size of a Service', () => {
  const growth = (mode: Mode, from: number, to: number) => {
    const sizes = [from, to].map((count) => factsOf(compare(among({ endpoints: pods(count) }), 'web'), mode));
    const totals = sizes.map(({ counts, sizes }) => [
      counts.reduce((sum, { count }) => sum + count, 0),
      sizes.reduce((sum, { bytes }) => sum + bytes, 0),
    ]);
    return totals.map(([objects = 0, bytes = 0]) => ({ objects, bytes }));
  };
  for (const [mode, each] of [
    ['nftables', 1],
    ['ebpf', 2],
    ['iptables', 1],
    ['ipvs', 1],
    ['userspace', 0],
  ] as const) {
    test(`${mode}: ${each} objects for each endpoint, and more bytes unless there are none`, () => {
      const [few, many] = growth(mode, 10, 11);
      assert.equal((many?.objects ?? 0) - (few?.objects ?? 0), each);
      const bytes = (many?.bytes ?? 0) - (few?.bytes ?? 0);
      assert.ok(mode === 'userspace' || mode === 'ipvs' ? bytes === 0 : bytes > 0, `${bytes} bytes`);
    });
  }

  test('a comparison of 5,000 endpoints stays small', () => {
    const size = JSON.stringify(compare(among({ endpoints: pods(5000) }), 'web')).length;
    assert.ok(size < 200_000, `${size} bytes`);
  });

  test('the first 200 objects of a kind are listed, all are counted', () => {
    const { sections } = factsOf(compare(among({ endpoints: pods(250) }), 'web'), 'nftables');
    const endpoints = sections.find(({ command }) => /endpoints-/.test(command));
    assert.deepEqual([endpoints?.count, endpoints?.lines.length], [250, 200]);
  });
});

test('the mode in use has the ports of its listeners; other modes say that they are not known', () => {
  const map = goldenServices();
  const listenerOf = () => ({ ip: '192.0.2.10', port: 40_123 });
  const used = factsOf(compare(map, 'plain', { inUse: 'userspace', listenerOf }), 'userspace');
  assert.deepEqual(used.notes, []);
  assert.match(used.sections.flatMap(({ lines }) => lines).join('\n'), /192\.0\.2\.10 \. 40123/);
  const unused = factsOf(compare(map, 'plain', { listenerOf }), 'userspace');
  assert.match(unused.notes.join(), /kernel chooses the port/);
  assert.doesNotMatch(unused.sections.flatMap(({ lines }) => lines).join('\n'), /40123| \. 0$/m);
});

test('drift is reported for the mode in use only, reasons of a missing mode for that mode only', () => {
  const { modes } = compare(goldenServices(), 'plain', { drifts: ['map services: missing'] });
  assert.deepEqual(
    modes.map(({ mode, drifts, unavailable }) => [mode, drifts, unavailable]),
    [
      ['nftables', ['map services: missing'], null],
      ['ebpf', null, null],
      ['iptables', null, null],
      ['ipvs', null, NO_IPVS],
      ['userspace', null, null],
    ],
  );
});

test('each mode is rendered with the node as that mode sees it', () => {
  const map = goldenServices();
  const own: NodeView = { ...map.node, localDetection: { mode: 'InterfaceNamePrefix', prefix: 'veth' } };
  const { modes } = compare(map, 'plain', { nodeIn: (mode) => (mode === 'iptables' ? own : map.node) });
  const textOf = (mode: Mode) => JSON.stringify(modes.find((one) => one.mode === mode)?.sections);
  assert.match(textOf('iptables'), /! -i veth\+/);
  assert.match(textOf('nftables'), /ip saddr != 10\.244\.0\.0\/16/);
});

test('a Service without an address in the table is not compared', () => {
  const map = goldenServices();
  const options = { map, namespace: 'shop', inUse: 'nftables', nodeIn: () => map.node } as const;
  const rest = { listenerOf: () => null, unavailable: new Map(), drifts: [] };
  assert.equal(compareModes({ ...options, ...rest, name: 'nothing' }), null);
});

for (const [kind, one] of [
  ['map entries', '1 map entry'],
  ['addresses', '1 address'],
  ['address sets', '1 address set'],
  ['rules', '1 rule'],
] as const) {
  test(`one of ${kind} is ${one}`, () => assert.equal(counted(kind, 1), one));
}

test('a comparison of an agent that does not render the rules of kube-proxy', () => {
  const whole = compare(goldenServices(), 'plain');
  const older = { ...whole, modes: whole.modes.map(({ kubeProxy: _, ...facts }) => facts) };
  const text = renderComparison(older, { whole: true });
  assert.ok(text.includes('iptables') && !text.includes('would write'));
});
