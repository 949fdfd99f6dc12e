import { testPromise } from '../testing/promise-suite.ts';

testPromise('userspace', 'nftables');
