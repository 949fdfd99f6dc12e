import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame } from '../kernel/packet.ts';
import { icmpErrorFrame, tcpFrame, udpFrame, vxlanFrame } from '../kernel/testing/frames.ts';
import { packetLine, readPacketLine } from './packet-line.ts';

const WAY = '10.1.0.2:4000 > 10.2.0.2:53';

describe('a packet as another machine reads it', () => {
  const rows: readonly {
    readonly name: string;
    readonly frame: Uint8Array;
    readonly payload: string;
    /** The content of the packet that an error is about. */
    readonly about?: string;
  }[] = [
    { name: 'a segment', frame: tcpFrame(WAY, { flags: 'SYN-ACK', sequence: 5 }), payload: '' },
    { name: 'a datagram with the text', frame: udpFrame(WAY, 'a trace-1 b'), payload: 'trace-1' },
    { name: 'a datagram without the text, whose content stays', frame: udpFrame(WAY, 'secret'), payload: '' },
    {
      name: 'inside a tunnel',
      frame: vxlanFrame('192.0.2.1', '192.0.2.2', 4789, tcpFrame(WAY)),
      payload: '',
    },
    {
      name: 'an error about a datagram',
      frame: icmpErrorFrame('10.2.0.2', '10.1.0.2', 3, 3, udpFrame(WAY, 'x')),
      payload: '',
      about: '',
    },
    ...['a trace-1 b', 'secret'].map((text) => ({
      name: `an error that repeats "${text}"`,
      frame: icmpErrorFrame('fd00::2', 'fd00::1', 1, 3, udpFrame('[fd00::1]:4000 > [fd00::2]:53', text)),
      payload: '',
      about: text === 'secret' ? '' : 'trace-1',
    })),
  ];
  for (const { name, frame, payload, about } of rows) {
    test(name, () => {
      const packet = readFrame(frame, 4789);
      assert.ok(packet);
      const line = JSON.stringify(packetLine(packet, 'trace-1'));
      assert.doesNotMatch(line, /secret/);
      const read = readPacketLine(JSON.parse(line));
      assert.equal(Buffer.from(read.payload).toString(), payload);
      const { payload: _, icmp, ...headers } = packet;
      const { payload: __, icmp: readIcmp, ...readHeaders } = read;
      assert.deepEqual(readHeaders, headers);
      assert.equal(readIcmp?.about?.destination, icmp?.about?.destination);
      assert.equal(readIcmp?.text, icmp?.text);
      assert.equal(readIcmp?.about && Buffer.from(readIcmp.about.payload).toString(), about);
    });
  }
});
