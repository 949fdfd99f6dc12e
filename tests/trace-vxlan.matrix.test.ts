import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { testTraceMatrix } from './testing/trace-matrix.ts';

/**
 * trace.matrix.test.ts has each mode without tunnels, trace-and-capture.matrix.test.ts traces in tunnels in the others: a tunnel
 * adds the same hops below each mode's.
 */
const MODES = TAKES_FULL_PRODUCT
  ? (['nftables', 'userspace', 'iptables', 'ebpf'] as const)
  : (['nftables', 'iptables'] as const);

testTraceMatrix(MODES, ['--overlay', 'vxlan'], 2);
