import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { readSysctl } from '../kernel/sysctl.ts';
import { silentLogger } from '../lib/log.ts';
import { applyConntrackSettings, DEFAULT_CONNTRACK } from './conntrack-settings.ts';

const NODE = 'fl-conntrack-settings';

test('a node keeps half-closed connections for the configured time', () => {
  createNetns(NODE);
  after(() => removeNetns(NODE));
  applyConntrackSettings({ ...DEFAULT_CONNTRACK, tcpCloseWaitTimeoutMs: 1_800_000 }, 2, silentLogger, NODE);
  assert.equal(readSysctl('net.netfilter.nf_conntrack_tcp_timeout_close_wait', NODE), '1800');
  assert.equal(readSysctl('net.netfilter.nf_conntrack_tcp_timeout_established', NODE), '86400');
});
