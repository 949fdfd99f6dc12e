// A process with few descriptors that proxies connections to a port of loopback: node limited-proxy.ts PORT. It prints the
// port of its listener, and ends with its standard input.
import { proxyLoopback } from './loopback-proxy.ts';

const { proxy, at } = proxyLoopback(Number(process.argv[2]));
console.log(at);
process.stdin.resume().once('end', () => proxy.close());
