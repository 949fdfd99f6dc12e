/** A change of one line that a user would notice, and that a test has to find. */
export interface Mutation {
  /** Relative to the repository. */
  readonly file: string;
  /** A part of the file, which has it once. */
  readonly from: string;
  readonly to: string;
  /** What the user notices. */
  readonly effect: string;
}

/** One in each of twenty rooms: tools/mutations.ts runs the tests with each. */
export const MUTATIONS: readonly Mutation[] = [
  {
    file: 'src/service/endpoint-selection.ts',
    from: 'if (ready.length === 0) return candidates.map((candidate) => candidate.endpoint);',
    to: 'if (ready.length === 0) return [];',
    effect: 'a Service whose endpoints all terminate refuses connections',
  },
  {
    file: 'src/policy/policy-reader.ts',
    from: 'const last = endPort ?? port;',
    to: 'const last = port;',
    effect: "a policy's range of ports allows only the first one",
  },
  {
    file: 'src/failover/ejection-policy.ts',
    from: 'return out < maxEjected(pool.length);',
    to: 'return out + 1 < maxEjected(pool.length);',
    effect: 'the failed one of two endpoints stays in use',
  },
  {
    file: 'src/dns/answer-cache.ts',
    from: 'if (time >= entry.expires) {',
    to: 'if (time >= entry.expires + 3_600_000) {',
    effect: 'answers of other servers are kept an hour too long',
  },
  {
    file: 'src/loadbalancer/election.ts',
    from: 'if (rank >= 0 && session !== null)',
    to: 'if (rank > 0 && session !== null)',
    effect: 'the node that should announce an address does not',
  },
  {
    file: 'src/network/host-ports.ts',
    from: "[destinationIsLocal, dnatTo('ports', ...key)],",
    to: '',
    effect: "a host port does not answer on the node's addresses",
  },
  {
    file: 'src/nft/ranges.ts',
    from: 'return (0xff << (8 - bits)) & 0xff;',
    to: 'return (0xff << (7 - bits)) & 0xff;',
    effect: 'networks in policies and source ranges are wider than written',
  },
  {
    file: 'src/proxy/gone-endpoints.ts',
    from: 'presence(one) > (now',
    to: 'presence(one) < (now',
    effect: 'connections to an endpoint that vanished hang',
  },
  {
    file: 'src/controllers/pod-services.ts',
    from: "conditionOf(pod, 'Ready')?.status !== conditionOf(before, 'Ready')?.status ||",
    to: '',
    effect: 'a pod that is no longer ready gets connections',
  },
  {
    file: 'src/runtime/restart-backoff.ts',
    from: 'FIRST_MS * 2 ** (this.#failures - 2)',
    to: 'FIRST_MS * 2 ** this.#failures',
    effect: 'a container that crashes waits four times as long',
  },
  {
    file: 'src/apiserver/label-selector.ts',
    from: "return !present || !values.includes(labels[key] ?? '');",
    to: "return present && !values.includes(labels[key] ?? '');",
    effect: 'NotIn leaves out objects without the label',
  },
  {
    file: 'src/observe/explain-policies.ts',
    from: "return verdict.isAllowed ? 'allowed' : 'denied';",
    to: "return 'allowed';",
    effect: 'explain says that a denied packet arrives',
  },
  {
    file: 'src/trace/outcome.ts',
    from: 'if (SOCKET_REFUSALS.has(error))',
    to: 'if (!SOCKET_REFUSALS.has(error))',
    effect: 'trace calls an unreachable destination refused',
  },
  {
    file: 'src/flows/packet-filter.ts',
    from: "jumpIf(JEQ, DNS_PORT, 'from-client', null);",
    to: "jumpIf(JEQ, DNS_PORT, 'drop', null);",
    effect: 'flows shows no DNS queries',
  },
  {
    file: 'src/dataplane/userspace/balancer.ts',
    from: 'bound.at + affinityMs <= clock.now()',
    to: 'bound.at + affinityMs >= clock.now()',
    effect: 'userspace mode: session affinity does not hold',
  },
  {
    file: 'src/dataplane/ebpf/entries.ts',
    from: 'out[at + FRONTEND.affinity_seconds / 4] = entry.affinitySeconds;',
    to: 'out[at + FRONTEND.affinity_seconds / 4] = 0;',
    effect: 'eBPF mode: session affinity does not hold',
  },
  {
    file: 'src/dataplane/rules/service-rules.ts',
    from: "[inSet('cluster-ips', destination), goto('reject')],",
    to: '',
    effect: 'nftables mode: a wrong port of a cluster IP hangs instead of being refused',
  },
  {
    file: 'src/dataplane/iptables/service-chains.ts',
    from: '? [rule({ ...match, comment: mark }, jump(CHAIN.markMasquerade)), onward]',
    to: '? [onward]',
    effect: 'iptables mode: clients outside get no answer from pods of other nodes',
  },
  {
    file: 'src/agent/command-authorization.ts',
    from: 'if (allowed) return name;',
    to: "if (allowed || name !== '') return name;",
    effect: 'any account may run commands of other machines',
  },
  {
    file: 'src/ui/request-guard.ts',
    from: 'if (!isEqual(given, token))',
    to: "if (given === '')",
    effect: 'the page answers with any token',
  },
];

/** Returns the file's text with the mutation. Throws if the text does not have the changed part once. */
export function mutate({ file, from, to }: Mutation, text: string): string {
  const parts = text.split(from);
  if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${from}`);
  return parts.join(to);
}
