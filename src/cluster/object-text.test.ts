import assert from 'node:assert/strict';
import { test } from 'node:test';
import { objectCommands } from './object-text.ts';

const ROWS: readonly (readonly [object: string, commands: readonly string[]])[] = [
  [
    'nft: table ip fairlead, chain prerouting → chain from-pod, map services, element 10.96.0.60 . tcp . 80',
    ['nft get element ip fairlead services { 10.96.0.60 . tcp . 80 }', 'nft list chain ip fairlead from-pod'],
  ],
  ['nft: table ip6 fairlead, chain masq-nonpod-pick-3', ['nft list chain ip6 fairlead masq-nonpod-pick-3']],
  [
    'nft: table ip fairlead, chain pick-3, map endpoints-3, elements 10.96.0.60 . tcp . 80 . 0 to 1',
    [
      'nft get element ip fairlead endpoints-3 { 10.96.0.60 . tcp . 80 . 0, 10.96.0.60 . tcp . 80 . 1 }',
      'nft list chain ip fairlead pick-3',
    ],
  ],
  ['nft: table ip fairlead, map services', ['nft list map ip fairlead services']],
  ['nft: table ip fairlead', ['nft list table ip fairlead']],
  ['nft: table ip fairlead; flush ruleset', []],
  ['nft: table ip fairlead, map m, element 1 }; flush ruleset', ['nft list table ip fairlead']],
  ['iptables -t nat chain KUBE-SERVICES', ['iptables -t nat -S KUBE-SERVICES']],
  ['ip6tables -t filter chain KUBE-FORWARD', ['ip6tables -t filter -S KUBE-FORWARD']],
  ['iptables -t nat chain -F', []],
  ['ipvsadm: virtual server TCP 10.96.0.1:80', ['ipvsadm -Ln -t 10.96.0.1:80']],
  ['ipvsadm: virtual server UDP [fd00::1]:53', ['ipvsadm -Ln -u [fd00::1]:53']],
  ['ipvsadm: virtual server FWM 7 IPv6', ['ipvsadm -Ln -f 7 -6']],
  ['ip: address 10.96.0.1 of fl-ipvs0', ['ip -o address show dev fl-ipvs0 to 10.96.0.1']],
  ['fairlead: listener tcp 127.0.0.1:4711 of pool x, process 1', ['ss -ltnpH sport = :4711']],
  ['bpf: map fl_endpoints, slots 0 to 2', []],
];
for (const [object, commands] of ROWS) {
  test(`${object}: ${commands.join('; ') || 'no tool prints it'}`, () => {
    assert.deepEqual(
      objectCommands(object).map((words) => words.join(' ')),
      commands,
    );
  });
}
