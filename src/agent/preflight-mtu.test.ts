import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { checkMtu, type MtuFacts, readMtuFacts } from './preflight-mtu.ts';

type TestLink = MtuFacts['links'][number];

const link = (index: number, name: string, mtu: number, fields: Partial<TestLink> = {}): TestLink => ({
  index,
  name,
  mtu,
  kind: null,
  up: true,
  vxlan: null,
  ...fields,
});
const uplink = (mtu = 1500) => link(2, 'eth0', mtu);
const vxlan = (name: string, mtu: number, id = 1, local: string | null = '10.0.0.1') =>
  link(3, name, mtu, { kind: 'vxlan', vxlan: { id, local, port: 8472, learning: false, device: 2 } });
const pod = (name: string, mtu: number) => link(9, name, mtu, { kind: 'veth' });
const tunnel = (name: string, kind: string, mtu: number, up = true) => link(4, name, mtu, { kind, up });

const DEFAULT = [{ destination: '0.0.0.0/0', device: 2 }];
const DEFAULT6 = [{ destination: '::/0', device: 2 }];

const ROWS: {
  what: string;
  links: TestLink[];
  routes?: MtuFacts['routes'];
  configured?: MtuFacts['configured'];
  /** The expected lines, and their fixes. */
  found: [what: RegExp, fix: RegExp | null][];
}[] = [
  {
    what: 'no pod network yet: the MTU that the agent would give to pods',
    links: [uplink()],
    found: [[/MTU 1500 of eth0: packets of 1500 bytes .*VXLAN the agent gives pods 1450$/, null]],
  },
  {
    what: 'no pod network yet, IPv6',
    links: [uplink()],
    routes: DEFAULT6,
    found: [[/pods 1430$/, null]],
  },
  {
    what: 'a tunnel and pods that fit',
    links: [uplink(), vxlan('flannel.1', 1450), pod('veth1', 1450)],
    configured: [{ file: 'subnet.env', mtu: 1450 }],
    found: [[/packets of 1450 bytes fit between nodes$/, null]],
  },
  {
    what: 'a tunnel that is larger than its device allows',
    links: [uplink(), vxlan('flannel.1', 1500)],
    found: [
      [
        /tunnel flannel\.1 has the MTU 1500, but only 1450 .*eth0 \(1500, less 50 of vxlan\)/,
        /1450, or .* 1550 /,
      ],
    ],
  },
  {
    what: 'the route is smaller than the device',
    links: [uplink(9001), vxlan('flannel.1', 1450)],
    routes: [{ destination: '0.0.0.0/0', device: 2, mtu: 1400 }],
    found: [[/only 1350 bytes fit through eth0 \(1400, less 50/, /to 1350,/]],
  },
  {
    what: 'a tunnel between IPv6 addresses',
    links: [uplink(), vxlan('flannel-v6.1', 1450, 1, 'fd00::1')],
    found: [[/only 1430 bytes/, /1430/]],
  },
  {
    what: 'IP in IP',
    links: [uplink(1480), tunnel('tunl0', 'ipip', 1480)],
    found: [[/tunl0 .*only 1460/, /1460/]],
  },
  {
    what: 'pods that are larger than the tunnel',
    links: [uplink(), vxlan('vxlan.calico', 1450), ...[1, 2, 3, 4].map((n) => pod(`cali${n}`, 1500))],
    found: [
      [
        /^4 devices of pods .*\(1450\): cali1 \(1500\), cali2 \(1500\), cali3 \(1500\) …$/,
        /1450, and recreate/,
      ],
    ],
  },
  {
    what: 'a configuration that is larger than the uplink',
    links: [uplink(1460)],
    configured: [{ file: '/etc/cni/net.d/10-bridge.conf', mtu: 1500 }],
    found: [[/^\/etc\/cni\/net\.d\/10-bridge\.conf gives pods the MTU 1500, but only 1460/, /1460/]],
  },
  {
    what: 'tunnels that are down, of Cilium, of an administrator: not of concern',
    links: [
      uplink(),
      tunnel('tunl0', 'ipip', 1500, false),
      vxlan('cilium_vxlan', 1500, 0, null),
      tunnel('cilium_wg0', 'wireguard', 1500),
      tunnel('wg0', 'wireguard', 1500),
      pod('lxc1', 9000),
    ],
    found: [[/packets of 1500 bytes fit/, null]],
  },
  {
    what: 'a network that is too small for IPv6',
    links: [uplink(1300), vxlan('flannel.1', 1250)],
    found: [[/only 1250 bytes fit between nodes: IPv6 needs 1280$/, /raise the MTU of eth0/]],
  },
  {
    what: 'the default route with the lowest metric',
    links: [uplink(), link(5, 'eth1', 1400)],
    routes: [
      { destination: '0.0.0.0/0', device: 5, metric: 200 },
      { destination: '0.0.0.0/0', device: 2, metric: 100 },
    ],
    found: [[/MTU 1500 of eth0/, null]],
  },
  {
    what: 'the uplink of a node in a container is a veth: not a device of a pod',
    links: [link(2, 'eth0', 1500, { kind: 'veth' }), vxlan('flannel.1', 1450), pod('veth1', 1450)],
    found: [[/MTU 1500 of eth0: packets of 1450 bytes fit between nodes$/, null]],
  },
  {
    what: 'both uplinks of a node in a container, and a pod that is too large',
    links: [
      link(2, 'eth0', 1500, { kind: 'veth' }),
      link(5, 'eth1', 9000, { kind: 'veth' }),
      pod('veth1', 1600),
    ],
    routes: [...DEFAULT, { destination: '0.0.0.0/0', device: 5, metric: 100 }],
    found: [[/^1 devices of pods .*\(1500\): veth1 \(1600\)$/, /1500, and recreate/]],
  },
  {
    what: 'no default route',
    links: [uplink()],
    routes: [],
    found: [[/not checked: .* no default route$/, null]],
  },
];

for (const { what, links, routes = DEFAULT, configured = [], found } of ROWS) {
  test(`MTU: ${what}`, () => {
    const findings = checkMtu({ links, routes, configured });
    assert.equal(findings.length, found.length, JSON.stringify(findings));
    for (const [i, [text, fix]] of found.entries()) {
      assert.match(findings[i]?.what ?? '', text);
      if (fix === null) assert.equal(findings[i]?.fix, null);
      else assert.match(findings[i]?.fix ?? '', fix);
    }
  });
}

test('MTU: configured values are read from the first CNI configuration, and from that of flannel', () => {
  const root = mkdtempSync(join(tmpdir(), 'preflight-mtu-'));
  const places = { confDir: '/net.d', flannel: '/subnet.env' };
  const write = (path: string, text: string) => writeFileSync(join(root, path), text);
  try {
    assert.deepEqual(readMtuFacts(root, places).configured, []);
    mkdirSync(join(root, 'net.d'));
    const plugins = [{ type: 'calico', mtu: 1440 }, { type: 'portmap' }];
    write('/net.d/10-calico.conflist', JSON.stringify({ plugins }));
    write('/net.d/20-other.conf', JSON.stringify({ mtu: 9000 }));
    write('/subnet.env', 'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_MTU=1450\n');
    assert.deepEqual(readMtuFacts(root, places).configured, [
      { file: '/net.d/10-calico.conflist', mtu: 1440 },
      { file: '/subnet.env', mtu: 1450 },
    ]);
    write('/net.d/10-calico.conflist', '{');
    assert.deepEqual(readMtuFacts(root, places).configured, [{ file: '/subnet.env', mtu: 1450 }]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
