/**
 * The packet test files of `./test` besides those of tests/promise: quick ones of the rooms that prove forwarding. Each has
 * the reason why it is worth its seconds in every run. Files may be of any part; those of a virtual machine make the
 * run start one.
 */
export const DEFAULT_FILES: Readonly<Record<string, string>> = {
  'src/dataplane/nftables/nftables.netns.test.ts': 'the rules of the default mode forward as the oracle says',
  'src/dataplane/iptables/iptables.netns.test.ts': 'the rules of iptables forward as the oracle says',
  'src/dataplane/ebpf/ebpf.netns.test.ts': 'the programs of ebpf forward as the oracle says',
  'src/network/pod-network.netns.test.ts': 'pods reach each other and their node',
};
