import { testPromise } from '../testing/promise-suite.ts';

testPromise('iptables', 'userspace');
