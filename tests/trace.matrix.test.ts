import { testTraceMatrix } from './testing/trace-matrix.ts';

/** trace-ipvs.vm.test.ts has the mode that not every kernel supports. */
testTraceMatrix(['userspace', 'nftables', 'iptables', 'ebpf'], [], 0);
