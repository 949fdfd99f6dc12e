import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import { createNetns, removeNetns } from '../netns.ts';
import { MessageWriter } from './attributes.ts';
import {
  NETLINK_ROUTE,
  NetlinkSocket,
  NLM_F_ACK,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REQUEST,
} from './socket.ts';

const RTM_GETLINK = 18;
const RTM_NEWROUTE = 24;
const RTM_GETROUTE = 26;
const RTNLGRP_IPV4_ROUTE = 7;

let netns = '';
let socket: NetlinkSocket;

beforeEach(() => {
  netns = `flt-${randomBytes(3).toString('hex')}`;
  createNetns(netns);
  execFileSync('ip', ['-n', netns, 'link', 'set', 'lo', 'up']);
  socket = new NetlinkSocket({ protocol: NETLINK_ROUTE, netns });
});

afterEach(() => {
  socket.close();
  removeNetns(netns);
});

/** `count` blackhole routes to 10.x.y.0/24; only the last asks for an acknowledgement. */
function routes(count: number, first = 0): { bytes: Uint8Array; sequences: number[] } {
  const writer = new MessageWriter();
  const sequences: number[] = [];
  for (let i = 0; i < count; i++) {
    const sequence = socket.nextSequence();
    sequences.push(sequence);
    const ack = i === count - 1 ? NLM_F_ACK : 0;
    const start = writer.beginMessage(
      RTM_NEWROUTE,
      NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | ack,
      sequence,
    );
    writer.u8(2).u8(24).u8(0).u8(0).u8(254).u8(4).u8(0).u8(6).u32(0);
    const n = first + i;
    writer.attribute(1, Uint8Array.of(10, n >> 8, n & 0xff, 0));
    writer.endMessage(start);
  }
  return { bytes: writer.bytes(), sequences };
}

const shownRoutes = () =>
  execFileSync('ip', ['-n', netns, 'route', 'show'], { encoding: 'utf8' }).split('\n').filter(Boolean).length;

test('a socket stays in the namespace that it was opened in', () => {
  const links = socket.dump(RTM_GETLINK, new Uint8Array(16));
  const shown = JSON.parse(execFileSync('ip', ['-n', netns, '-j', 'link'], { encoding: 'utf8' }));
  assert.equal(links.length, shown.length);
});

for (const [size, count] of [
  ['small, sent at once', 10],
  ['large, sent by a thread', 8000],
] as const) {
  test(`a batch (${size}) is processed completely, and every refusal has its message`, async () => {
    const first = routes(count);
    assert.deepEqual(await socket.batch(first.bytes, first.sequences.at(-1) ?? 0), []);
    assert.equal(shownRoutes(), count);
    const again = routes(count + 3, 0);
    const refusals = await socket.batch(again.bytes, again.sequences.at(-1) ?? 0);
    assert.deepEqual(
      refusals.map((refusal) => [refusal.sequence, refusal.errno]),
      again.sequences.slice(0, count).map((sequence) => [sequence, 17]),
    );
    assert.equal(shownRoutes(), count + 3);
  });
}

test('while a thread sends, requests are refused and batches wait', async () => {
  const one = routes(8000);
  const sending = socket.batch(one.bytes, one.sequences.at(-1) ?? 0);
  assert.throws(() => socket.request(RTM_GETLINK, 0, new Uint8Array(16)), { code: 'EBUSY' });
  const two = routes(10, 9000);
  assert.deepEqual(await socket.batch(two.bytes, two.sequences.at(-1) ?? 0), []);
  assert.deepEqual(await sending, []);
  assert.equal(shownRoutes(), 8010);
});

test('closing while a thread sends waits for the thread', async () => {
  const one = routes(8000);
  const sending = socket.batch(one.bytes, one.sequences.at(-1) ?? 0);
  socket.close();
  assert.deepEqual(await sending, []);
  await assert.rejects(socket.batch(one.bytes, 1), { code: 'EBADF' });
});

test('a dump returns everything regardless of its length', async () => {
  const many = routes(20_000);
  assert.deepEqual(await socket.batch(many.bytes, many.sequences.at(-1) ?? 0), []);
  const table = new MessageWriter().u8(2).u8(0).u16(0).u32(0).u32(0).attributeU32(15, 254);
  assert.equal(socket.dump(RTM_GETROUTE, table.bytes()).length, 20_000);
});

test('an error has errno, the kernel’s message and the object', () => {
  const route = new MessageWriter().u8(2).u8(24).u8(0).u8(0).u8(254).u8(4).u8(0).u8(1).u32(0);
  route.attribute(1, Uint8Array.of(10, 0, 0, 0)).attributeU32(4, 4711);
  assert.throws(() => socket.request(RTM_NEWROUTE, NLM_F_CREATE, route.bytes(), 'the route'), {
    name: 'FairleadError',
    code: 'ENODEV',
    object: 'the route',
  });
  const bad = new MessageWriter().u8(2).u8(77).u8(0).u8(0).u8(254).u8(4).u8(0).u8(1).u32(0);
  assert.throws(() => socket.request(RTM_NEWROUTE, NLM_F_CREATE, bad.bytes()), {
    message: /Invalid prefix length/,
  });
});

test('a listener receives every event, or a report that events were lost', async () => {
  using listener = new NetlinkSocket({ protocol: NETLINK_ROUTE, netns, receiveBuffer: 8192 });
  let events = 0;
  const lost = new Promise<void>((resolve) => {
    listener.subscribe([RTNLGRP_IPV4_ROUTE], () => events++, resolve);
  });
  const few = routes(3);
  socket.batchSync(few.bytes, few.sequences.at(-1) ?? 0);
  while (events < 3) await new Promise((resolve) => setImmediate(resolve));
  const many = routes(2000, 10);
  socket.batchSync(many.bytes, many.sequences.at(-1) ?? 0);
  await lost;
  assert.ok(events < 2003, String(events));
});
