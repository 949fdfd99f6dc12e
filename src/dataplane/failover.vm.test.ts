import type { IPFamily } from '../lib/address.ts';
import { createIpvs } from './ipvs/ipvs.ts';
import { testFailover } from './testing/failover-suite.ts';
import { testShortTimers } from './testing/short-timer-suite.ts';

const families: readonly IPFamily[] = ['ipv4', 'ipv6'];

testFailover('IPVS', (netns) => createIpvs({ families, netns }));
testShortTimers('IPVS', (netns) => createIpvs({ families, netns }), { keepsEndpoint: true });
