import { join } from 'node:path';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { printTable } from '../nft/print.ts';
import { renderHeld } from './connection-bound.ts';
import { nameServerOfNode, renderDnsFallback } from './dns-fallback.ts';
import { renderDnsLimit } from './dns-limit.ts';
import { renderEgress } from './egress.ts';
import { renderHostPorts } from './host-ports.ts';
import { renderSources } from './node-sources.ts';
import { renderGuard } from './source-guard-rules.ts';
import { renderUnused } from './unused-addresses.ts';

/** `node --test --test-update-snapshots FILE` updates the files. */
const file = (name: string) => join(import.meta.dirname, 'golden', `${name}.nft`);

test('host ports equal golden/host-ports.nft', (t) => {
  const spec = renderHostPorts('ipv4', 'fl0', [
    {
      ips: ['10.244.1.5', 'fd00:244::5'],
      hostPorts: [
        { hostIP: '', protocol: 'TCP', hostPort: 8080, containerPort: 80 },
        { hostIP: '192.0.2.10', protocol: 'UDP', hostPort: 53, containerPort: 53 },
        { hostIP: 'fd00::1', protocol: 'TCP', hostPort: 81, containerPort: 81 },
      ],
    },
  ]);
  t.assert.fileSnapshot(spec && printTable(spec), file('host-ports'), { serializers: [String] });
});

test('egress equals golden/egress.nft: pods to the cluster keep their address', (t) => {
  const own = ['10.244.1.0/24'].flatMap((text) => parseCidr(text) ?? []);
  const peer = { name: 'node-2', podCidrs: ['10.244.2.0/24'], addresses: ['192.0.2.11'] };
  const spec = renderEgress('ipv4', own, [peer]);
  t.assert.fileSnapshot(spec && printTable(spec), file('egress'), { serializers: [String] });
});

test('the DNS fallback equals golden/dns-fallback.nft', (t) => {
  const spec = renderDnsFallback('ipv4', {
    cluster: ['10.96.0.10', 'fd00:10:96::a'],
    own: ['10.244.1.1', 'fd00:10:244:1::1'],
    others: ['10.244.2.1', 'fd00:10:244:2::1', '10.244.3.1'].map(nameServerOfNode),
    next: ['10.244.2.1', 'fd00:10:244:2::1'],
  });
  t.assert.fileSnapshot(spec && printTable(spec), file('dns-fallback'), { serializers: [String] });
});

test('the DNS fallback to pods equals golden/dns-fallback-pods.nft: a pod of this node sees an address of the node', (t) => {
  const spec = renderDnsFallback('ipv4', {
    cluster: ['10.96.0.10'],
    own: [],
    others: [
      { address: '10.60.1.7', ports: { UDP: 53, TCP: 53 }, isHere: true },
      { address: '10.60.2.9', ports: { UDP: 1053, TCP: null }, isHere: false },
    ],
    next: [],
  });
  t.assert.fileSnapshot(spec && printTable(spec), file('dns-fallback-pods'), { serializers: [String] });
});

test('a family without another name server has no DNS fallback', (t) => {
  const others = ['fd00:10:244:2::1'].map(nameServerOfNode);
  const servers = { cluster: ['10.96.0.10'], own: ['10.244.1.1'], others, next: [] };
  t.assert.equal(renderDnsFallback('ipv4', servers), null);
  t.assert.equal(renderDnsFallback('ipv6', servers), null);
});

test('the source guard equals golden/source-guard.nft', (t) => {
  const spec = renderGuard('02:00:00:00:00:01', [
    {
      port: 'flp0123456789',
      pod: 'shop/web-0',
      mac: '02:00:00:00:00:05',
      ips: ['10.244.1.5', 'fd00:244::5'],
      extra: ['192.0.2.7/32'].flatMap((text) => parseCidr(text) ?? []),
    },
  ]);
  t.assert.fileSnapshot(printTable(spec), file('source-guard'), { serializers: [String] });
});

test('the sources of a node with a tunnel equal golden/node-sources.nft', (t) => {
  const spec = renderSources('ipv4', 'fl0', {
    podCidrs: ['10.244.1.0/24'].flatMap((text) => parseCidr(text) ?? []),
    nodes: [{ name: 'node-2', podCidrs: ['10.244.2.0/24', 'fd00:244:2::/64'], addresses: ['192.0.2.11'] }],
    tunnel: { port: 4789, device: 'fl.vxlan', local: '192.0.2.10' },
  });
  t.assert.fileSnapshot(spec && printTable(spec), file('node-sources'), { serializers: [String] });
});

test('the limit of DNS clients equals golden/dns-limit.nft', (t) => {
  const limits = {
    servers: ['10.96.0.10', '10.244.1.1', 'fd00:10:96::a'],
    port: 53,
    perClient: { perSecond: 8000, burst: 2000 },
    connectionsPerClient: { perSecond: 1000, burst: 500 },
    maxClients: 4096,
  };
  const spec = renderDnsLimit('ipv4', limits);
  t.assert.fileSnapshot(spec && printTable(spec), file('dns-limit'), { serializers: [String] });
  t.assert.equal(renderDnsLimit('ipv6', { ...limits, servers: ['10.96.0.10'] }), null);
});

test('the answers for unused addresses equal golden/unused-addresses.nft', (t) => {
  const own = ['10.244.1.0/24', 'fd00:244::/64'].flatMap((text) => parseCidr(text) ?? []);
  const links = ['192.168.7.0/24', 'fd00:7::/64'].flatMap((text) => parseCidr(text) ?? []);
  const used = ['10.244.1.5', 'fd00:244::5'];
  const spec = renderUnused('ipv4', 'fl0', { podCidrs: own, links, used });
  t.assert.fileSnapshot(spec && printTable(spec), file('unused-addresses'), { serializers: [String] });
  t.assert.equal(renderUnused('ipv4', 'fl0', { podCidrs: own.slice(1), links, used: [] }), null);
});

test('pods with too many connections equal golden/connections.nft', (t) => {
  const spec = renderHeld('ipv4', 'fl0', [{ pod: 'shop/web-0', mac: '02:00:00:00:00:05' }]);
  t.assert.fileSnapshot(printTable(spec), file('connections'), { serializers: [String] });
});
