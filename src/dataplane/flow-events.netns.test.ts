import { createIptables } from './iptables/iptables.ts';
import { createNftables } from './nftables/nftables.ts';
import { testFlowEvents } from './testing/flow-events-suite.ts';
import { createUserspace } from './userspace/userspace.ts';

testFlowEvents('nftables', createNftables);
testFlowEvents('iptables', createIptables);
testFlowEvents('userspace', createUserspace);
