import { createIpvs } from '../dataplane/ipvs/ipvs.ts';
import { testFlowEvents } from './testing/tracked-flows-suite.ts';

testFlowEvents('ipvs', createIpvs);
