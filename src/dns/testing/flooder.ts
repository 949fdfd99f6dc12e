/** Sends a bounded number of queries in a bounded time from one address: flooder.ts FROM PORT NAME PER_SECOND SECONDS. */
import { createSocket } from 'node:dgram';
import { queryBytes } from './client.ts';

const [from = '', port = '', name = '', perSecond = '', seconds = ''] = process.argv.slice(2);
const socket = createSocket('udp4');
const query = queryBytes(`${name} A`);
const all = Math.min(Number(perSecond) * Number(seconds), 200_000);
let sent = 0;
// The answers are not read: a flooder does not wait for them.
socket.on('error', () => {});
socket.bind(0, from, () => {
  const start = performance.now();
  const ticking = setInterval(() => {
    const due = Math.min(all, ((performance.now() - start) * Number(perSecond)) / 1000);
    for (; sent < due; sent++) socket.send(query, Number(port), '127.0.0.1');
    if (sent < all) return;
    clearInterval(ticking);
    socket.close();
    process.stdout.write(`${sent}\n`);
  }, 1);
});
