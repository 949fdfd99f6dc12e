import assert from 'node:assert/strict';
import { execFileSync, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { basename } from 'node:path';
import { after, before, test } from 'node:test';
import { programsAt } from '../../kernel/bpf/program.ts';
import { inControlGroup } from '../../kernel/control-group.ts';
import { createNetns, listenTcpIn, openTcpIn, removeNetns } from '../../kernel/netns.ts';
import { tcpInfo } from '../../kernel/tcp-info.ts';
import { type IPFamily, parseCidr } from '../../lib/address.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { attachSynTimeout } from './syn-timeout.ts';
import { makeTestGroup, removeTestGroup } from './testing/client.ts';

const netns = `flt-${randomBytes(4).toString('hex')}`;
const NETWORKS = ['10.96.0.0/16', 'fd00:96::/112', '10.97.1.128/25'].flatMap((text) => parseCidr(text) ?? []);
const CLIENT = '10.96.0.200';
/** All addresses are local ones. */
const ROUTES = `
  link set lo up
  route add local 10.0.0.0/8 dev lo
  route add local fd00::/16 dev lo
`;
/** No address but the client's answers, and SYN-ACKs are lost. */
const RULES = `
  table inet silent {
    counter answers {}
    chain input {
      type filter hook input priority 0
      tcp flags & (syn | ack) == (syn | ack) counter name answers drop
      ip daddr ${CLIENT} accept
      tcp dport 8080 drop
    }
  }
`;
let group = '';

const nft = (words: string, input?: string) =>
  execFileSync('ip', ['netns', 'exec', netns, 'nft', ...words.split(' ')], { input }).toString();

before(() => {
  createNetns(netns);
  execFileSync('ip', ['-n', netns, '-batch', '-'], { input: ROUTES });
  nft('-f -', RULES);
  group = makeTestGroup();
});
after(async () => {
  removeNetns(netns);
  await removeTestGroup(group);
});

function programs(): number[] {
  const fd = openSync(group, 'r');
  try {
    return programsAt(fd, 'sockOps');
  } finally {
    closeSync(fd);
  }
}

/** A connection attempt of a process in the control group, or outside. */
function attempt(
  address: string,
  isInside = true,
  family?: IPFamily,
): { retransmits(): number; close(): void } {
  const open = () => openTcpIn(netns, family ?? (address.includes(':') ? 'ipv6' : 'ipv4'));
  const fd = isInside ? inControlGroup(`/${basename(group)}`, open) : open();
  const socket = new Socket({ fd }).on('error', () => {});
  socket.connect(8080, address);
  return { retransmits: () => tcpInfo(fd).retransmits, close: () => socket.destroy() };
}

const ROWS: readonly [
  what: string,
  isShort: boolean,
  address: string,
  isInside?: boolean,
  family?: IPFamily,
][] = [
  ['IPv4', true, '10.96.3.4'],
  ['IPv6', true, 'fd00:96::34'],
  ['IPv4 from a socket of IPv6', true, '::ffff:10.96.3.4', true, 'ipv6'],
  ['a network that ends within a byte', true, '10.97.1.200'],
  ['IPv4 beside the networks', false, '10.97.1.100'],
  ['IPv6 beside the networks', false, 'fd00:96::1:34'],
  ['IPv4 beside the networks from a socket of IPv6', false, '::ffff:10.97.1.100', true, 'ipv6'],
  ['a process outside of the control group', false, '10.96.3.4', false],
];

test('only SYNs to the networks, of sockets in the control group, are retransmitted early', async () => {
  const timeout = attachSynTimeout(group, NETWORKS);
  const attempts = ROWS.map(([what, isShort, ...how]) => ({ what, isShort, ...attempt(...how) }));
  try {
    const counts = await eventually(() => {
      const now = attempts.map(({ what, isShort, retransmits }) => ({ what, isShort, count: retransmits() }));
      return now.every(({ isShort, count }) => !isShort || count >= 3) && now;
    });
    const fewest = Math.min(...counts.flatMap(({ isShort, count }) => (isShort ? count : [])));
    // After a second, when the kernel's timer expires first, the others have retransmitted four times at least.
    const others = counts.filter(({ isShort, count }) => !isShort && count * 3 > fewest);
    assert.deepEqual(others, []);
  } finally {
    for (const { close } of attempts) close();
    timeout.close();
  }
});

test('SYN-ACKs keep the timer of the kernel', async () => {
  const server = createServer();
  server.listen({ fd: inControlGroup(`/${basename(group)}`, () => listenTcpIn(netns, CLIENT, 8080)) });
  const timeout = attachSynTimeout(group, NETWORKS);
  const [outside, silent] = [attempt(CLIENT, false), attempt('10.96.3.4')];
  try {
    const answers = await eventually(() => {
      const count = Number(/packets (\d+)/.exec(nft('list counter inet silent answers'))?.[1]);
      return count > 0 && silent.retransmits() >= 3 && count;
    });
    assert.ok(answers * 2 < silent.retransmits() + 1, `${answers} SYN-ACKs`);
  } finally {
    outside.close();
    silent.close();
    timeout.close();
    server.close();
  }
});

test('networks are compared by their bits', () => {
  const timeout = attachSynTimeout(group, NETWORKS);
  const covered = ['10.96.255.1', '10.97.1.128', '10.97.1.127', 'fd00:96::ffff', 'fd00:97::1', 'text'].filter(
    timeout.covers,
  );
  timeout.close();
  assert.deepEqual(covered, ['10.96.255.1', '10.97.1.128', 'fd00:96::ffff']);
});

test('the program is attached beside others, once, and detached when it is closed', () => {
  assert.deepEqual(programs(), []);
  const first = attachSynTimeout(group, NETWORKS);
  const second = attachSynTimeout(group, NETWORKS);
  assert.equal(programs().length, 2);
  first.close();
  assert.equal(programs().length, 1);
  second.close();
  assert.deepEqual(programs(), []);
});

test('a process that is killed leaves no program behind', async () => {
  const script = new URL('./testing/syn-timeout-process.ts', import.meta.url);
  const child = fork(script, [group]);
  await once(child, 'message');
  assert.equal(programs().length, 1);
  child.kill('SIGKILL');
  await once(child, 'exit');
  await eventually(() => programs().length === 0);
});
