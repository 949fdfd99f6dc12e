import { testQuestions } from './testing/question-suite.ts';

// Differs from nftables only in its rules, which the check compares.
testQuestions(['iptables'], { concurrency: 8, choice: 'sampled' });
