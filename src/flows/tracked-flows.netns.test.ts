import { createIptables } from '../dataplane/iptables/iptables.ts';
import { createNftables } from '../dataplane/nftables/nftables.ts';
import { createUserspace } from '../dataplane/userspace/userspace.ts';
import { testFlowEvents } from './testing/tracked-flows-suite.ts';

testFlowEvents('nftables', createNftables);
testFlowEvents('iptables', createIptables);
testFlowEvents('userspace', createUserspace);
