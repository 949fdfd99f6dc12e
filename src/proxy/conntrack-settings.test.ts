import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type ConntrackSettings,
  conntrackSysctls,
  DEFAULT_CONNTRACK,
  maxConnections,
} from './conntrack-settings.ts';

const rows: readonly [what: string, change: Partial<ConntrackSettings>, sysctls: Record<string, number>][] = [
  [
    "kube-proxy's defaults",
    {},
    {
      'net.netfilter.nf_conntrack_tcp_timeout_established': 86_400,
      'net.netfilter.nf_conntrack_tcp_timeout_close_wait': 3600,
    },
  ],
  [
    'zero keeps a timeout, fractions of a second are rounded up',
    { tcpEstablishedTimeoutMs: 0, tcpCloseWaitTimeoutMs: 1500, udpTimeoutMs: 250 },
    { 'net.netfilter.nf_conntrack_tcp_timeout_close_wait': 2, 'net.netfilter.nf_conntrack_udp_timeout': 1 },
  ],
  [
    'segments outside the window are accepted if configured',
    { tcpEstablishedTimeoutMs: 0, tcpCloseWaitTimeoutMs: 0, tcpBeLiberal: true },
    { 'net.netfilter.nf_conntrack_tcp_be_liberal': 1 },
  ],
];
for (const [what, change, sysctls] of rows) {
  test(what, () => assert.deepEqual(conntrackSysctls({ ...DEFAULT_CONNTRACK, ...change }), sysctls));
}

const sizes: readonly [processors: number, change: Partial<ConntrackSettings>, max: number][] = [
  [2, {}, 131_072],
  [8, {}, 262_144],
  [8, { maxPerCore: 0 }, 0],
];
for (const [processors, change, max] of sizes) {
  test(`${processors} processors with ${JSON.stringify(change)} track ${max} connections`, () => {
    assert.equal(maxConnections({ ...DEFAULT_CONNTRACK, ...change }, processors), max);
  });
}
