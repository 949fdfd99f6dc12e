import { testFaults } from './testing/fault-suite.ts';

testFaults(['nftables', 'ebpf', 'iptables', 'userspace']);
