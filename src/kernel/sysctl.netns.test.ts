import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import { createNetns, removeNetns } from './netns.ts';
import { readSysctl, writeSysctl, writeSysctls } from './sysctl.ts';

let netns = '';
beforeEach(() => {
  netns = `flt-${randomBytes(3).toString('hex')}`;
  createNetns(netns);
});
afterEach(() => void removeNetns(netns));

test('a setting belongs to its namespace', () => {
  const mine = readSysctl('net.ipv4.conf.lo.route_localnet');
  const there = readSysctl('net.ipv4.conf.lo.route_localnet', netns) === '1' ? 0 : 1;
  assert.equal(writeSysctl('net.ipv4.conf.lo.route_localnet', there, netns), true);
  assert.equal(readSysctl('net/ipv4/conf/lo/route_localnet', netns), String(there));
  assert.equal(readSysctl('net.ipv4.conf.lo.route_localnet'), mine);
});

test('a missing setting and a refused value are different errors', () => {
  assert.equal(readSysctl('net.ipv4.no_such_setting', netns), null);
  assert.equal(writeSysctl('net.ipv4.no_such_setting', 1, netns), false);
  assert.throws(() => writeSysctl('net.ipv4.ip_forward', 'maybe', netns), {
    code: 'EINVAL',
    object: 'net.ipv4.ip_forward',
  });
  assert.deepEqual(writeSysctls({ 'net.ipv4.ip_forward': 1, 'net.ipv4.no_such_setting': 1 }, netns), [
    'net.ipv4.no_such_setting',
  ]);
  assert.equal(readSysctl('net.ipv4.ip_forward', netns), '1');
});
