import { Socket } from 'node:net';
import { systemClock } from '../../../lib/clock.ts';
import { silentLogger } from '../../../lib/log.ts';
import { openLink } from '../link.ts';

/** A pod runtime that runs no pods, and misbehaves as its argument says once it is opened. */
const [behaviour = ''] = process.argv.slice(2);
const socket = new Socket({ fd: 3 });
const kept: Buffer[] = [];
const link = openLink({
  socket,
  answer: async () => null,
  notice(name) {
    if (name !== 'open') return;
    link.notify('ready', null);
    misbehave();
  },
  clock: systemClock,
  logger: silentLogger,
});
void link.ended.then(() => {
  if (behaviour !== 'outlives its link') process.exit(0);
});
setInterval(() => {}, 1000);

function misbehave(): void {
  switch (behaviour) {
    case 'exits':
      process.exit(7);
      return;
    case 'is stuck':
      process.kill(process.pid, 'SIGSTOP');
      return;
    case 'uses too much memory':
      setInterval(() => kept.push(Buffer.alloc(16 << 20, 1)), 50);
      return;
    case 'sends a malformed message':
    case 'outlives its link':
      socket.write('x\n');
      return;
    case 'is killed by its heap':
      process.abort();
  }
}
