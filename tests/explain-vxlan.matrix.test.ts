import { testQuestions } from './testing/question-suite.ts';

// Through tunnels, packets of a node have another source than the one that its object lists.
testQuestions(['nftables', 'userspace', 'ebpf'], {
  concurrency: 8,
  choice: 'shared',
  upOptions: ['--overlay', 'vxlan'],
});
