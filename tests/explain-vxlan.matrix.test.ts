import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { testQuestions } from './testing/question-suite.ts';

/**
 * trace-and-capture.matrix.test.ts compares explain with traced packets in tunnels in the modes that the full product adds;
 * what they do to a packet before it enters a tunnel, explain.netns.test.ts has.
 */
const MODES = TAKES_FULL_PRODUCT ? (['nftables', 'userspace', 'ebpf'] as const) : (['nftables'] as const);

// Through tunnels, packets of a node have another source than the one that its object lists.
testQuestions(MODES, {
  concurrency: 8,
  choice: 'shared',
  upOptions: ['--overlay', 'vxlan'],
});
