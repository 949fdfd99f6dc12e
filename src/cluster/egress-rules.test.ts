import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { printTable } from '../nft/print.ts';
import { renderEgressRules } from './egress-rules.ts';

const rules = (changes: Partial<Parameters<typeof renderEgressRules>[0]> = {}) => {
  const wire = parseCidr('172.30.0.0/24');
  assert.ok(wire);
  const options = {
    cluster: 'demo',
    device: 'fl-0123456789',
    wire,
    hasHostAccess: false,
    closedUplinks: [],
    nameServers: [],
    closedDestinations: [],
  };
  return printTable(renderEgressRules({ ...options, ...changes }));
};

test('only connections that pods open are forwarded', () => {
  const text = rules();
  assert.match(text, /oifname "fl-0123456789" drop/);
  assert.match(text, /ip saddr 172\.30\.0\.0\/24 oifname != "fl-0123456789" masquerade/);
});

test('pods do not reach programs of the machine without host access', () => {
  assert.match(
    rules(),
    /iifname "fl-0123456789" meta l4proto 6 drop|iifname "fl-0123456789" meta l4proto tcp drop/,
  );
  assert.doesNotMatch(rules({ hasHostAccess: true }), /l4proto/);
});

test('an uplink on which forwarding was off still forwards nothing else', () => {
  const text = rules({ closedUplinks: ['eth0'] });
  assert.match(text, /iifname "eth0" oifname != "fl-\*?" ct status .* drop/);
  assert.doesNotMatch(rules(), /eth0/);
});

test('pods reach a name server at an address of the machine, and none of its other programs', () => {
  const text = rules({ nameServers: ['192.0.2.1'] });
  assert.match(text, /iifname "fl-0123456789" ip daddr 192\.0\.2\.1 th dport 53 accept/);
  assert.match(text, /iifname "fl-0123456789" meta l4proto (6|tcp) drop/);
});

test('pods do not reach a machine behind an uplink, except its name server', () => {
  const text = rules({ closedDestinations: ['192.0.2.1'], nameServers: ['192.0.2.1'] });
  assert.match(
    text,
    /chain forward[\s\S]*ip daddr 192\.0\.2\.1 th dport 53 accept\s+iifname "fl-0123456789" ip daddr 192\.0\.2\.1 drop\s+iifname "fl-0123456789" accept/,
  );
});
