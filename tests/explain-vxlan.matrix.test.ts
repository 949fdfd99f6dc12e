import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { testQuestions } from './testing/question-suite.ts';

/** trace-and-capture.matrix.test.ts compares explain with traced packets in tunnels in eBPF mode, too. */
const MODES = TAKES_FULL_PRODUCT
  ? (['nftables', 'userspace', 'ebpf'] as const)
  : (['nftables', 'userspace'] as const);

// Through tunnels, packets of a node have another source than the one that its object lists.
testQuestions(MODES, {
  concurrency: 8,
  choice: 'shared',
  upOptions: ['--overlay', 'vxlan'],
});
