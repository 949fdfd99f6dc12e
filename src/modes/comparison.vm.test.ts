import { createIpvs } from '../dataplane/ipvs/ipvs.ts';
import { testRendered } from './testing/rendered-suite.ts';

testRendered({ mode: 'ipvs', open: ({ netns }) => createIpvs({ families: ['ipv4'], netns }) });
