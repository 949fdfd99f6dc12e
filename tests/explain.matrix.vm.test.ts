import { testQuestions } from './testing/question-suite.ts';

// Few at a time: the virtual machine has one slow processor.
testQuestions(['ipvs'], { concurrency: 4, choice: 'sampled' });
