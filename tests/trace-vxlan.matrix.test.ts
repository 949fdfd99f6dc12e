import { testTraceMatrix } from './testing/trace-matrix.ts';

testTraceMatrix(['nftables', 'userspace', 'ebpf'], ['--overlay', 'vxlan']);
