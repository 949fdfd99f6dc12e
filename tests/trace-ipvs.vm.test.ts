import { testTraceMatrix } from './testing/trace-matrix.ts';

/** Without tunnels: the kernel of the virtual machine has no VXLAN. */
testTraceMatrix(['ipvs'], ['--mode', 'ipvs'], 3);
