import { testPromise } from '../testing/promise-suite.ts';

testPromise('nftables', 'ebpf');
