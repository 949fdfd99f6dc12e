import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { systemClock } from '../lib/clock.ts';
import { probeForged } from './forged-probe.ts';

const [from, to] = ['a', 'b'].map((end) => `flt-${end}${randomBytes(4).toString('hex')}`) as [string, string];
const SCRIPT = `
ip -n ${from} link add eth0 type veth peer name eth0 netns ${to}
for end in "${from} 1" "${to} 2"; do
  set -- $end
  ip -n $1 link set lo up
  ip -n $1 link set eth0 up
  ip -n $1 address add 10.1.0.$2/24 dev eth0
  ip -n $1 address add fd00:1::$2/64 dev eth0 nodad
  ip -n $1 route add default via 10.1.0.$((3 - $2))
  ip -n $1 route add default via fd00:1::$((3 - $2))
done`;
const shell = (script: string) => execFileSync('bash', ['-ec', script]);
const FAMILIES = [
  ['ipv4', '10.1.0.1', '10.1.0.2', '192.0.2.9', 'ip saddr 192.0.2.9'],
  ['ipv6', 'fd00:1::1', 'fd00:1::2', '2001:db8::9', 'ip6 saddr 2001:db8::9'],
] as const;

before(() => {
  for (const netns of [from, to]) createNetns(netns);
  shell(SCRIPT);
});
after(() => {
  for (const netns of [from, to]) removeNetns(netns);
});

for (const [family, own, address, source, match] of FAMILIES) {
  const probe = (patience = 20_000) =>
    probeForged({
      from: { netns: from, address: own },
      to: { netns: to, address },
      ...{ source, clock: systemClock, patience },
    });
  const filter = (rule: string) =>
    shell(`ip netns exec ${to} nft -f - <<'END'
table netdev test {
  chain arriving { type filter hook ingress device eth0 priority 0; ${rule} }
}
END`);
  const unfilter = () => shell(`ip netns exec ${to} nft delete table netdev test`);

  test(`${family}: forged datagrams that arrive are an answer`, async () => {
    assert.deepEqual(await probe(), { kind: 'answer', server: '', message: '', client: source });
  });

  test(`${family}: forged datagrams that are dropped are silence`, async () => {
    filter(`${match} drop;`);
    try {
      assert.deepEqual(await probe(), { kind: 'silence' });
    } finally {
      unfilter();
    }
  });

  test(`${family}: without a datagram of the sender's own, nothing is concluded`, async () => {
    filter('meta l4proto udp drop;');
    try {
      assert.equal((await probe(50)).kind, 'failed');
    } finally {
      unfilter();
    }
  });
}
