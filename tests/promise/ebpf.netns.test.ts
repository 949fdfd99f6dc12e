import { testPromise } from '../testing/promise-suite.ts';

testPromise('ebpf', 'iptables');
