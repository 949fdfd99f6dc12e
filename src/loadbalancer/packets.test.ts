import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatMac, macBytes } from '../kernel/rtnetlink/links.ts';
import { arpReply, gratuitousArp, readArp } from './arp.ts';
import {
  neighbourReply,
  readNeighbourMessage,
  solicitationFrame,
  solicitedNodeGroup,
  unsolicitedAdvertisement,
} from './neighbour-discovery.ts';

const hex = (text: string) => new Uint8Array(Buffer.from(text.replaceAll(/\s/g, ''), 'hex'));
const mac = macBytes('02:00:00:00:00:0a');

/** The request of Linux for 172.30.0.200 from 172.30.0.2 (captured). */
const REQUEST = hex(`ffffffffffff 0a1b2c3d4e5f 0806 0001 0800 06 04 0001
  0a1b2c3d4e5f ac1e0002 000000000000 ac1e00c8`);
/** The request of Linux for fd00::c8 from fd00::2. */
const SOLICITATION = solicitationFrame('fd00::c8', 'fd00::2', hex('0a1b2c3d4e5f'));

test('an ARP request is read, and its reply goes only to the sender', () => {
  const request = readArp(REQUEST);
  assert.ok(request);
  assert.deepEqual(
    [request.operation, request.sender, request.target, formatMac(request.senderMac)],
    ['request', '172.30.0.2', '172.30.0.200', '0a:1b:2c:3d:4e:5f'],
  );
  assert.deepEqual(
    arpReply(request, mac),
    hex(`0a1b2c3d4e5f 02000000000a 0806 0001 0800 06 04 0002
      02000000000a ac1e00c8 0a1b2c3d4e5f ac1e0002`),
  );
});

test('a takeover is announced by a request and a reply, both broadcast', () => {
  assert.deepEqual(gratuitousArp('172.30.0.200', mac), [
    hex(`ffffffffffff 02000000000a 0806 0001 0800 06 04 0001
      02000000000a ac1e00c8 000000000000 ac1e00c8`),
    hex(`ffffffffffff 02000000000a 0806 0001 0800 06 04 0002
      02000000000a ac1e00c8 ffffffffffff ac1e00c8`),
  ]);
});

const NO_ARP: [string, (frame: Uint8Array) => Uint8Array][] = [
  ['truncated', (frame) => frame.subarray(0, 41)],
  ['of another EtherType', (frame) => frame.with(12, 0x86)],
  ['of another hardware', (frame) => frame.with(15, 6)],
  ['of another protocol', (frame) => frame.with(17, 1)],
  ['with longer hardware addresses', (frame) => frame.with(18, 8)],
  ['with longer protocol addresses', (frame) => frame.with(19, 16)],
  ['of another operation', (frame) => frame.with(21, 3)],
];
for (const [what, change] of NO_ARP) {
  test(`an ARP packet ${what} is ignored`, () => assert.equal(readArp(change(REQUEST)), null));
}

test('a solicitation goes to the group of its target and is read', () => {
  const message = readNeighbourMessage(SOLICITATION);
  assert.deepEqual(message && [message.type, message.source, message.destination, message.target], [
    'solicitation',
    'fd00::2',
    'ff02::1:ff00:c8',
    'fd00::c8',
  ]);
  assert.equal(solicitedNodeGroup('fd00::12:3456:789a'), 'ff02::1:ff56:789a');
  assert.equal(formatMac(SOLICITATION.subarray(0, 6)), '33:33:ff:00:00:c8');
});

test('the answer to a solicitation is solicited, overrides, and goes to the sender', () => {
  const question = readNeighbourMessage(SOLICITATION);
  assert.ok(question);
  const frame = neighbourReply(question, mac);
  assert.equal(formatMac(frame.subarray(0, 6)), '0a:1b:2c:3d:4e:5f');
  const answer = readNeighbourMessage(frame);
  assert.deepEqual(answer && { ...answer, mac: formatMac(answer.mac ?? mac), frameSource: null }, {
    type: 'advertisement',
    source: 'fd00::c8',
    destination: 'fd00::2',
    target: 'fd00::c8',
    solicited: true,
    override: true,
    mac: '02:00:00:00:00:0a',
    frameSource: null,
  });
});

test('duplicate address detection is answered to all nodes, unsolicited', () => {
  const probe = solicitationFrame('fd00::c8', '::', hex('0a1b2c3d4e5f')).slice(0, 78);
  // Without the option, as RFC 4861 requires of a sender without an address.
  probe[19] = 24;
  const message = withChecksum(probe);
  const question = readNeighbourMessage(message);
  assert.ok(question);
  assert.deepEqual(neighbourReply(question, mac), unsolicitedAdvertisement('fd00::c8', mac));
});

test('a takeover is announced to all nodes', () => {
  const message = readNeighbourMessage(unsolicitedAdvertisement('fd00::c8', mac));
  assert.deepEqual(message && [message.type, message.destination, message.solicited, message.override], [
    'advertisement',
    'ff02::1',
    false,
    true,
  ]);
});

const NO_NEIGHBOUR: [string, (frame: Uint8Array) => Uint8Array][] = [
  ['truncated', (frame) => frame.subarray(0, 77)],
  ['with a wrong length', (frame) => frame.with(19, 200)],
  ['forwarded by a router (hop limit)', (frame) => frame.with(21, 254)],
  ['of another protocol', (frame) => frame.with(20, 17)],
  ['of another type', (frame) => withChecksum(frame.with(54, 133))],
  ['with a code', (frame) => withChecksum(frame.with(55, 1))],
  ['with a wrong checksum', (frame) => frame.with(57, (frame[57] ?? 0) ^ 1)],
  ['with a multicast target', (frame) => withChecksum(frame.with(62, 0xff))],
  ['with an option of length 0', (frame) => withChecksum(frame.with(79, 0))],
  ['with an option longer than the message', (frame) => withChecksum(frame.with(79, 9))],
  ['with unspecified sender and target', (frame) => withChecksum(fill(frame, 22, 38))],
];
for (const [what, change] of NO_NEIGHBOUR) {
  test(`a solicitation ${what} is ignored`, () => {
    assert.ok(readNeighbourMessage(SOLICITATION));
    assert.equal(readNeighbourMessage(change(SOLICITATION)), null);
  });
}

test('random frames never make a reader fail', () => {
  let state = 1;
  const random = () => {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    return state >> 8;
  };
  for (let n = 0; n < 20_000; n++) {
    const frame = (n % 2 === 0 ? SOLICITATION : REQUEST).slice(0, random() % 90);
    for (let i = 0; i < 3 && frame.length > 0; i++) frame[random() % frame.length] = random();
    readArp(frame);
    readNeighbourMessage(frame);
  }
});

function fill(frame: Uint8Array, from: number, to: number): Uint8Array {
  return frame.slice().fill(0, from, to);
}

/**
 * Returns the frame with a valid ICMPv6 checksum, by the definition: ones' complement over pseudo-header
 * and message.
 */
function withChecksum(frame: Uint8Array): Uint8Array {
  const out = frame.slice();
  out.set([0, 0], 56);
  const length = ((out[18] ?? 0) << 8) | (out[19] ?? 0);
  const words = [...out.subarray(22, 54), ...out.subarray(54, 54 + length)];
  let sum = length + 58;
  for (let i = 0; i < words.length; i += 2) sum += ((words[i] ?? 0) << 8) + (words[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  out.set([(~sum >> 8) & 0xff, ~sum & 0xff], 56);
  return out;
}
