import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { systemClock } from '../lib/clock.ts';
import { delayLink } from './link-delay.ts';

const DELAY_MS = 120;

const FAMILIES: readonly (readonly ['udp4' | 'udp6', address: string])[] = [
  ['udp4', '127.0.0.1'],
  ['udp6', '::1'],
];
for (const [type, address] of FAMILIES) {
  test(`${type}: packets arrive in their order, after the delay of each way, and at once after its end`, async () => {
    const receiver = createSocket(type);
    const sender = createSocket(type);
    after(() => {
      receiver.close();
      sender.close();
    });
    receiver.bind(0, address);
    await once(receiver, 'listening');
    const received: { text: string; at: number }[] = [];
    receiver.on('message', (bytes) => received.push({ text: bytes.toString(), at: performance.now() }));
    const send = (text: string) =>
      new Promise((resolve) => sender.send(text, receiver.address().port, address, resolve));
    const arrived = async (count: number) => {
      while (received.length < count) await once(receiver, 'message');
    };

    const link = delayLink({ netns: undefined, device: 'lo', delayMs: DELAY_MS, clock: systemClock });
    const start = performance.now();
    const texts = Array.from({ length: 200 }, (_, i) => `packet ${i}`);
    for (const text of texts) await send(text);
    await arrived(texts.length);
    assert.deepEqual(
      received.map(({ text }) => text),
      texts,
    );
    // It leaves and arrives through the same device.
    const first = (received[0]?.at ?? 0) - start;
    assert.ok(first >= 2 * DELAY_MS, `the first arrived after ${first} ms`);

    await send('held');
    link.close();
    await send('free');
    await arrived(texts.length + 2);
    assert.deepEqual(
      received
        .slice(texts.length)
        .map(({ text }) => text)
        .sort(),
      ['free', 'held'],
    );
  });
}
