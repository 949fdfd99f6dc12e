import { describe } from 'node:test';
import type { IPFamily } from '../lib/address.ts';
import { createIptables } from './iptables/iptables.ts';
import { createNftables } from './nftables/nftables.ts';
import { testFailover } from './testing/failover-suite.ts';

const families: readonly IPFamily[] = ['ipv4', 'ipv6'];

// Most of the time these tests wait for clients to retransmit their SYNs.
describe('failover', { concurrency: 2 }, () => {
  testFailover('nftables', (netns) => createNftables({ families, netns }));
  testFailover('iptables', (netns) => createIptables({ families, netns }), ['ipv6']);
});
