import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkSettings } from './preflight.ts';

const GOOD: Readonly<Record<string, string>> = {
  '/proc/sys/net/ipv4/ip_forward': '1',
  '/proc/sys/net/bridge/bridge-nf-call-iptables': '1',
  '/proc/sys/net/ipv4/conf/all/rp_filter': '2',
  '/proc/sys/net/netfilter/nf_conntrack_max': '131072',
};

const ROWS: readonly [what: string, changed: Record<string, string | null>, level: string, fix: RegExp][] = [
  ['forwarding is off', { '/proc/sys/net/ipv4/ip_forward': '0' }, 'problem', /ip_forward=1/],
  [
    'br_netfilter is missing',
    { '/proc/sys/net/bridge/bridge-nf-call-iptables': null },
    'note',
    /br_netfilter/,
  ],
  ['rp_filter is strict', { '/proc/sys/net/ipv4/conf/all/rp_filter': '1' }, 'note', /rp_filter=2/],
  ['few connections', { '/proc/sys/net/netfilter/nf_conntrack_max': '4096' }, 'note', /maxPerCore/],
];

test('a node with usual settings has nothing to fix', () => {
  assert.deepEqual(
    checkSettings((path) => GOOD[path] ?? null).filter(({ level }) => level !== 'ok'),
    [],
  );
});

for (const [what, changed, level, fix] of ROWS) {
  test(`${what}: reported with the fix`, () => {
    const found = checkSettings((path) => (path in changed ? (changed[path] ?? null) : (GOOD[path] ?? null)));
    const wrong = found.filter((one) => one.level !== 'ok');
    assert.equal(wrong.length, 1);
    assert.equal(wrong[0]?.level, level);
    assert.match(wrong[0]?.fix ?? '', fix);
  });
}
