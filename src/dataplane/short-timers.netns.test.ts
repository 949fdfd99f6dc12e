import { describe } from 'node:test';
import type { IPFamily } from '../lib/address.ts';
import { createIptables } from './iptables/iptables.ts';
import { createNftables } from './nftables/nftables.ts';
import { testShortTimers } from './testing/short-timer-suite.ts';

const families: readonly IPFamily[] = ['ipv4', 'ipv6'];

describe('short SYN timers', { concurrency: 2 }, () => {
  testShortTimers('nftables', (netns) => createNftables({ families, netns }));
  testShortTimers('iptables', (netns) => createIptables({ families, netns }));
});
