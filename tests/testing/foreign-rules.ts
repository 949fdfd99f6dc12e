import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createFlowExplainer } from '../../src/cluster/explain-flow.ts';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import { inNetns } from '../../src/kernel/netns.ts';
import { nodeNetns } from '../../src/network/topology.ts';
import { compareQuestion, type SceneAddresses } from './question-comparison.ts';
import type { AskedScene } from './question-suite.ts';
import type { Reality } from './questions.ts';

interface RulesRow {
  readonly name: string;
  /** The node whose tables get the rules. */
  readonly on: 'node-1' | 'node-2';
  /** What an own table contains, or a rule of iptables. `family`: "inet" unless said. */
  readonly rules: string | { readonly iptables: string; readonly isLegacy?: true };
  readonly family?: 'ip' | 'ip6' | 'bridge';
  readonly from: string;
  readonly to: string;
  /** `unknown`: the rule is not simulated, whatever happens. */
  readonly real: Reality | 'unknown';
  readonly in?: Partial<Record<Mode, Reality | 'unknown'>>;
  readonly says?: RegExp;
  /** It is about the way through the node, which depends on the mode; others are about the forms of rules. */
  readonly isOfWay?: true;
}

const chain = (hook: string, rules: string, { priority = '0', policy = 'accept', type = 'filter' } = {}) =>
  `chain ${hook} {\n type ${type} hook ${hook} priority ${priority}; policy ${policy};\n ${rules}\n }`;

/** All hosts answer for their addresses. */
const SILENCE_MS = 1500;
/** The proxy has accepted the connection, and resets it when it cannot connect. */
const BEHIND_PROXY = { userspace: 'refused' } as const;
const LONE = { from: 'client', to: 'svc/local' } as const;

/** The pod `client` is on node-1, the only endpoint of Service `local` on node-2. */
export const FOREIGN_RULES: readonly RulesRow[] = [
  {
    name: 'a policy that drops what is forwarded',
    isOfWay: true,
    on: 'node-2',
    rules: chain('forward', '', { policy: 'drop' }),
    ...LONE,
    in: BEHIND_PROXY,
    real: 'silence',
    says: /table inet other,\s+chain forward, priority 0, policy drop/,
  },
  {
    name: 'a port among others, in a set with ranges',
    on: 'node-2',
    rules: chain('forward', 'tcp dport { 22, 8000-8100, 9000 } drop'),
    ...LONE,
    in: BEHIND_PROXY,
    real: 'silence',
    says: /rule\s+with\s+handle/,
  },
  {
    name: 'other ports in a set with ranges',
    on: 'node-2',
    rules: chain('forward', 'tcp dport { 22, 80, 8081-8100, 9000 } drop'),
    ...LONE,
    real: 'answer',
  },
  {
    name: 'what is accepted before it would be dropped',
    isOfWay: true,
    on: 'node-2',
    rules: chain('forward', 'ct state established,related accept\n ip protocol tcp ct state new accept', {
      policy: 'drop',
    }),
    ...LONE,
    real: 'answer',
  },
  {
    name: 'replies that are not accepted',
    isOfWay: true,
    on: 'node-2',
    rules: chain('forward', 'tcp dport 8080 accept', { policy: 'drop' }),
    ...LONE,
    in: BEHIND_PROXY,
    real: 'silence',
    says: /the\s+replies\s+are\s+dropped/,
  },
  {
    name: 'a verdict map that jumps to a chain of its own',
    on: 'node-2',
    rules: `chain fresh {\n tcp dport 8080 reject with tcp reset\n }\n${chain('forward', 'ct state vmap { established : accept, related : accept, new : jump fresh }')}`,
    ...LONE,
    real: 'refused',
    says: /rejected.*chain\s+fresh/s,
  },
  {
    name: 'a device that is not on the way',
    on: 'node-2',
    rules: chain('forward', 'oifname "lo" drop\n iifname "none*" drop'),
    ...LONE,
    real: 'answer',
  },
  {
    name: 'the device that the packet leaves by',
    isOfWay: true,
    on: 'node-1',
    rules: chain('postrouting', 'oifname "eth0" tcp dport 8080 drop', { priority: '-10' }),
    ...LONE,
    in: BEHIND_PROXY,
    real: 'silence',
    says: /chain\s+postrouting,\s+priority\s+-10/,
  },
  {
    name: 'a source network, and a counter before it',
    isOfWay: true,
    on: 'node-2',
    family: 'ip',
    rules: chain('prerouting', 'counter\n ip saddr 10.244.0.0/16 tcp flags & (syn | ack) == syn drop', {
      priority: '-150',
    }),
    ...LONE,
    // The proxy connects from an address of its node.
    in: { userspace: 'answer' },
    real: 'silence',
  },
  {
    name: 'a table of the other family',
    on: 'node-2',
    family: 'ip6',
    rules: chain('forward', 'drop'),
    ...LONE,
    real: 'answer',
  },
  {
    name: 'a firewall of the node for its own ports',
    isOfWay: true,
    on: 'node-2',
    rules: chain('input', 'tcp dport 8085 drop'),
    from: 'client',
    to: 'NODE2:8085',
    real: 'silence',
  },
  {
    name: 'a firewall of the node, a pod behind it',
    on: 'node-2',
    rules: chain('input', 'tcp dport { 8080, 8085 } drop'),
    ...LONE,
    real: 'answer',
  },
  {
    name: 'a node port from outside, whose node drops it first',
    isOfWay: true,
    on: 'node-2',
    rules: chain('prerouting', 'tcp dport 30084 drop', { priority: '-300' }),
    from: 'outside',
    to: 'NODE2:30084',
    real: 'silence',
  },
  {
    name: 'a rule of iptables-legacy, whose tables are not read',
    on: 'node-2',
    rules: { iptables: 'FORWARD -p tcp --dport 8080 -j DROP', isLegacy: true },
    ...LONE,
    real: 'unknown',
    says: /on node node-2 are not known: table ip filter of iptables-legacy/,
  },
  {
    name: 'a table of bridges, which is not read',
    on: 'node-2',
    family: 'bridge',
    rules: chain('forward', 'ether type ip drop'),
    ...LONE,
    real: 'unknown',
    says: /are not known: table bridge other/,
  },
  {
    name: 'a rule of iptables for a port and a state',
    on: 'node-2',
    rules: {
      iptables:
        'FORWARD -p tcp -m tcp --dport 8080 -m conntrack --ctstate NEW -m comment --comment firewall -j REJECT --reject-with tcp-reset',
    },
    ...LONE,
    real: 'refused',
    says: /table\s+ip\s+filter,\s+chain\s+FORWARD/,
  },
  {
    name: 'a rule of iptables for other ports and flows',
    on: 'node-2',
    rules: {
      iptables:
        'FORWARD ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
    },
    ...LONE,
    real: 'answer',
  },
  {
    name: 'a rate that drops some',
    on: 'node-2',
    rules: chain('forward', 'tcp dport 8080 limit rate over 1/hour drop'),
    ...LONE,
    real: 'unknown',
    says: /not simulated/,
  },
  {
    name: 'a destination that is changed',
    on: 'node-2',
    rules: chain('prerouting', 'tcp dport 8080 redirect to :1', { type: 'nat', priority: '-100' }),
    ...LONE,
    real: 'unknown',
  },
];

/** Writes each row's rules as a firewall does, and compares what `explain` says with what a client meets. */
export async function checkForeignRules(
  scene: AskedScene,
  mode: Mode,
  addresses: SceneAddresses,
  row: RulesRow,
): Promise<void> {
  const state = scene.cluster.state();
  const netns = nodeNetns(state.name, row.on);
  const table = `${row.family ?? 'inet'} other`;
  const { rules } = row;
  const change = (isAdded: boolean) => {
    if (typeof rules !== 'string')
      run(netns, rules.isLegacy ? 'iptables-legacy' : 'iptables-nft', [
        isAdded ? '-A' : '-D',
        ...rules.iptables.split(' '),
      ]);
    else
      run(netns, 'nft', ['-f', '-'], isAdded ? `table ${table} {\n${rules}\n}\n` : `delete table ${table}\n`);
  };
  change(true);
  try {
    const real = row.in?.[mode] ?? row.real;
    const { name, from, to, says } = row;
    if (real !== 'unknown') {
      const question = {
        name,
        from,
        to,
        real,
        silenceMs: SILENCE_MS,
        ...(says && real === row.real ? { says } : {}),
      };
      return await compareQuestion(state, scene.asker(from), mode, question, addresses);
    }
    const explanation = await createFlowExplainer(state).explain({ from, to, family: 'ipv4' });
    assert.equal(explanation.verdict, 'unknown', explanation.reason);
    if (says) assert.match(explanation.causes.map(({ text }) => text).join('\n'), says);
  } finally {
    change(false);
  }
}

function run(netns: string, program: string, args: readonly string[], input = ''): void {
  const { status, stderr, error } = inNetns(netns, () =>
    spawnSync(program, args, { input, encoding: 'utf8' }),
  );
  assert.equal(status, 0, `${error ?? ''}${stderr}\n${args.join(' ')}\n${input}`);
}
