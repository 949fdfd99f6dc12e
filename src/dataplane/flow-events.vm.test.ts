import { createIpvs } from './ipvs/ipvs.ts';
import { testFlowEvents } from './testing/flow-events-suite.ts';

testFlowEvents('ipvs', createIpvs);
