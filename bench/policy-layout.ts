/**
 * The rules that a straightforward renderer writes for network policies: a chain per isolated pod, which the base chain
 * finds by comparing one address after the other, a chain per policy, and in it a rule per peer and port. As text for
 * `nft -f -`, and not for iptables-restore, so that it runs in the same part of the kernel as Fairlead's table, and the
 * difference is that of the layouts and of how they are handed over.
 */

export interface NaivePolicy {
  readonly name: string;
  /** The addresses of the peers that it admits to port 80. */
  readonly peers: readonly string[];
}

/** A pod of the node, and the policies that isolate it. */
export interface NaivePod {
  readonly address: string;
  readonly policies: readonly NaivePolicy[];
}

export const NAIVE_TABLE = 'ip naive-policies';

const chainOfPolicy = ({ name }: NaivePolicy) => `policy-${name}`;
const chainOfPod = ({ address }: NaivePod) => `pod-${address}`;

/** Returns the whole table. */
export function naiveTable(pods: readonly NaivePod[], policies: readonly NaivePolicy[]): string {
  const lines = [
    `add table ${NAIVE_TABLE}`,
    `add chain ${NAIVE_TABLE} forward { type filter hook forward priority 0 ; }`,
    ...policies.map((policy) => `add chain ${NAIVE_TABLE} ${chainOfPolicy(policy)}`),
    ...pods.map((pod) => `add chain ${NAIVE_TABLE} ${chainOfPod(pod)}`),
    `add rule ${NAIVE_TABLE} forward ct state established,related accept`,
  ];
  for (const pod of pods) {
    lines.push(`add rule ${NAIVE_TABLE} forward ip daddr ${pod.address} jump ${chainOfPod(pod)}`);
    for (const policy of pod.policies)
      lines.push(`add rule ${NAIVE_TABLE} ${chainOfPod(pod)} jump ${chainOfPolicy(policy)}`);
    lines.push(`add rule ${NAIVE_TABLE} ${chainOfPod(pod)} drop`);
  }
  for (const policy of policies) appendRules(lines, policy);
  return textOf(lines);
}

/** Returns policies whose peers have changed, each with a rewritten chain. */
export function naiveChange(policies: readonly NaivePolicy[]): string {
  const lines: string[] = [];
  for (const policy of policies) {
    lines.push(`flush chain ${NAIVE_TABLE} ${chainOfPolicy(policy)}`);
    appendRules(lines, policy);
  }
  return textOf(lines);
}

/** The number of rules of the whole table. */
export const naiveRules = (pods: readonly NaivePod[], policies: readonly NaivePolicy[]): number =>
  1 +
  pods.reduce((sum, pod) => sum + pod.policies.length + 2, 0) +
  policies.reduce((sum, { peers }) => sum + peers.length, 0);

function appendRules(lines: string[], policy: NaivePolicy): void {
  const chain = chainOfPolicy(policy);
  for (const peer of policy.peers)
    lines.push(`add rule ${NAIVE_TABLE} ${chain} ip saddr ${peer} tcp dport 80 accept`);
}

const textOf = (lines: readonly string[]): string => `${lines.join('\n')}\n`;
