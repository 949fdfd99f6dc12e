import { testFaults } from './testing/fault-suite.ts';

testFaults(['ipvs']);
