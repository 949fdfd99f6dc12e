import { testTraceMatrix } from './testing/trace-matrix.ts';
import { MATRIX } from './testing/trace-matrix-scene.ts';

/** The virtual machine has one slow processor: of the datagrams, those that are answered and refused. */
const ROWS = MATRIX.filter(
  ({ protocol, outcome }) => protocol === 'TCP' || outcome === 'other node' || outcome === 'refused',
);

testTraceMatrix(['ipvs'], ['--mode', 'ipvs'], ROWS);
