import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import { createNetns, listenTcpIn, localPort, removeNetns } from '../kernel/netns.ts';
import { systemClock } from '../lib/clock.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { dial, type LateAnswer } from './dial.ts';

const netns = `flt-${randomBytes(4).toString('hex')}`;
const run = (command: string) => execFileSync('ip', ['netns', 'exec', netns, 'bash', '-c', command]);
const server = createServer((socket) => socket.on('error', () => {}).resume());
let port = 0;

before(() => {
  createNetns(netns);
  run('ip link set lo up mtu 1500');
  const fd = listenTcpIn(netns, '127.0.0.1', 0);
  port = localPort(fd);
  server.listen({ fd });
});
afterEach(() => run('nft flush ruleset; tc qdisc del dev lo root 2>/dev/null || true'));
after(() => {
  server.close();
  removeNetns(netns);
});

const LOSE_FIRST = `nft -f - <<'END'
  add table ip lossy
  add set ip lossy seen { typeof tcp sport; flags dynamic,timeout; timeout 1m; }
  add chain ip lossy input { type filter hook input priority 0; }
  add rule ip lossy input tcp flags & (syn | ack) == syn tcp sport != @seen add @seen { tcp sport } drop
END`;
/** A packet of 74 bytes takes 0.74 s, after an earlier packet has used up the burst. */
const DELAY =
  'tc qdisc add dev lo root tbf rate 800bit burst 100 limit 20000; echo > /dev/udp/127.0.0.1/9; true';

const rows: readonly [what: string, command: string, late: LateAnswer][] = [
  ['an endpoint that recovers during the connection attempt is not slow', LOSE_FIRST, 'healed'],
  ['an endpoint that takes longer than the timeout to answer is slow', DELAY, 'slow'],
];
for (const [what, command, expected] of rows)
  test(what, async () => {
    run(command);
    const late: LateAnswer[] = [];
    const endpoint = { ip: '127.0.0.1', port };
    const result = await dial(endpoint, 200, systemClock, netns, (answer) => late.push(answer));
    assert.equal(result, 'timeout');
    await eventually(() => late.length > 0);
    assert.deepEqual(late, [expected]);
  });

test('an endpoint that answers in time is not late', async () => {
  const result = await dial({ ip: '127.0.0.1', port }, 5000, systemClock, netns, () => assert.fail('late'));
  assert.equal(result, 'success');
});
