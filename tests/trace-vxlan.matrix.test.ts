import { testTraceMatrix } from './testing/trace-matrix.ts';

testTraceMatrix(['nftables', 'userspace', 'iptables', 'ebpf'], ['--overlay', 'vxlan'], 2);
