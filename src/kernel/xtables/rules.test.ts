import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { IPFamily } from '../../lib/address.ts';
import { outputOf, type SetIndex } from './codec.ts';
import { LAYOUT } from './layout.ts';
import { createRuleDecoder } from './rule-decoder.ts';
import { createRuleEncoder, MAX_RULE_BYTES } from './rule-encoder.ts';
import { UnknownRule } from './words.ts';

const SETS: SetIndex = {
  numberOf: (name) => (name === 'KUBE-AFF-A' ? 7 : null),
  nameOf: (number) => (number === 7 ? 'KUBE-AFF-A' : null),
};
const CHAIN_OFFSET = 4096;

/** In both families; ADDRESS stands for one of the family. */
const KNOWN: readonly string[] = [
  '-j DROP',
  '-j KUBE-IP-ALL',
  '-g KUBE-IP-0a60',
  '-s ADDRESS -m comment --comment "shop/web:http" -j KUBE-MARK-MASQ',
  '! -s ADDRESS -d ADDRESS -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
  '-i eth0 -j RETURN',
  '! -i veth+ -p tcp -j RETURN',
  '-d ADDRESS -p tcp -m comment --comment "a b -> c" -m tcp --dport 80 -j KUBE-SVC-A',
  '-p udp -m udp --dport 28672:32767 -g KUBE-NP-17',
  '-p sctp -m sctp --dport 80 -j RETURN',
  '-p sctp -m sctp -j DNAT --to-destination SOCKET',
  '-p tcp -m comment --comment "a" -m tcp -j DNAT --to-destination SOCKET',
  '-m comment --comment "a" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-A',
  '-m statistic --mode random --probability 0.00024414062 -j KUBE-SEP-A',
  '-m set --match-set KUBE-AFF-A src -j KUBE-SEP-A',
  '-j SET --add-set KUBE-AFF-A src --exist',
  '-m addrtype --src-type LOCAL -j KUBE-SVC-A',
  '-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS',
  '-m mark ! --mark 0x4000/0x4000 -j RETURN',
  '-m mark --mark 0x1 -j ACCEPT',
  '-j MARK --set-xmark 0x4000/0x0',
  '-j MASQUERADE --random-fully',
  '-p tcp -j REJECT --reject-with tcp-reset',
  '-j REJECT --reject-with UNREACHABLE',
  '-m conntrack --ctstate INVALID -j DROP',
];

/** In IPv4 only. */
const KNOWN_IPV4 =
  '-m mark --mark 0x4000/0x4000 -m conntrack --ctstate DNAT --ctorigdst 127.0.0.0/8 -j RETURN';

const UNKNOWN: readonly (readonly [what: string, rule: string])[] = [
  ['a match of another program', '-m limit --limit 1/sec -j RETURN'],
  ['a target of another program', '-j LOG --log-prefix x'],
  ['an option of another program', '-o eth0 -j RETURN'],
  ['an option after the target', '-j RETURN --x'],
  ['a port above 65535', '-p tcp -m tcp --dport 99999 -j RETURN'],
  ['a source port', '-p tcp -m tcp --sport 80 -j RETURN'],
  ['a network that does not begin with its address', '-s OUTSIDE -j RETURN'],
  ['an address without a prefix', '-s 10.0.0.1 -j RETURN'],
  ['an inverted protocol', '! -p tcp -j RETURN'],
  ['no target', '-m mark --mark 0x1'],
  ['a set that does not exist', '-m set --match-set NONE src -j RETURN'],
  ['a comment that is too long', `-m comment --comment "${'x'.repeat(256)}" -j RETURN`],
  ['a comment that does not end', '-m comment --comment "x -j RETURN'],
  ['an address of the other family', '-j DNAT --to-destination OTHER'],
  ['a probability above 1', '-m statistic --mode random --probability 1.50000000000 -j RETURN'],
  ['text of no rule', 'RETURN'],
];

const WORDS: Readonly<Record<IPFamily, Readonly<Record<string, string>>>> = {
  ipv4: {
    ADDRESS: '10.96.0.0/12',
    SOCKET: '10.244.1.2:8080',
    UNREACHABLE: 'icmp-port-unreachable',
    OUTSIDE: '10.0.0.1/8',
    OTHER: '[fd00::1]:80',
  },
  ipv6: {
    ADDRESS: 'fd00:96::/108',
    SOCKET: '[fd00:244::2]:8080',
    UNREACHABLE: 'icmp6-port-unreachable',
    OUTSIDE: 'fd00::1/64',
    OTHER: '10.0.0.1:80',
  },
};

for (const family of ['ipv4', 'ipv6'] as const) {
  const rendered = (rule: string) =>
    rule.replaceAll(/[A-Z]+(?= |$|"|\/)/g, (word) => WORDS[family][word] ?? word);
  const decoder = createRuleDecoder(family, SETS);
  const write = (rule: string, isSupported = true) => {
    const memory = Buffer.alloc(MAX_RULE_BYTES);
    let jumpTo: string | null = null;
    const encoder = createRuleEncoder({ family, sets: SETS, isSupported: () => isSupported });
    const length = encoder.write(rule, outputOf(memory), 0, (at, chain) => {
      jumpTo = chain;
      memory.writeInt32LE(CHAIN_OFFSET, at);
    });
    return { bytes: memory.subarray(0, length), read: () => decoder.read(memory, 0, () => jumpTo) };
  };

  describe(`${family} rules`, () => {
    for (const rule of [...KNOWN.map(rendered), ...(family === 'ipv4' ? [KNOWN_IPV4] : [])]) {
      test(`${rule}: what is written is read`, () => {
        const { bytes, read } = write(rule);
        assert.equal(read(), rule);
        assert.equal(bytes.length % 8, 0);
        assert.equal(bytes.readUInt16LE(LAYOUT[family].next), bytes.length);
      });
    }
    for (const [what, rule] of UNKNOWN) {
      test(`${what}: left to the program`, () => {
        assert.throws(() => write(rendered(rule)), UnknownRule);
      });
    }
    test('a revision that the kernel lacks: left to the program', () => {
      assert.throws(() => write('-m mark --mark 0x1 -j RETURN', false), UnknownRule);
    });
  });
}
