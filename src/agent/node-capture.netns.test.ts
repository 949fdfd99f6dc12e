import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { readFrame } from '../kernel/packet.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { eventually } from '../lib/testing/eventually.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { type CaptureLine, createNodeCapture } from './node-capture.ts';

const POD = 'flt-capture-pod';
const configuration = {
  nodeName: 'n1',
  network: null,
  commandsBindAddress: '0.0.0.0:10268',
} as unknown as AgentConfiguration;

/** The response of a capture, as far as it uses it. */
function response(): { readonly lines: CaptureLine[]; readonly stream: PassThrough } {
  const lines: CaptureLine[] = [];
  const stream = Object.assign(new PassThrough(), { writeHead() {} });
  let rest = '';
  stream.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    lines.push(...parts.map((line) => JSON.parse(line) as CaptureLine));
  });
  return { lines, stream };
}

/** Opens a connection and waits until it is refused, or accepted and closed. */
const reach = (host: string, port: number) =>
  new Promise<void>((resolve) => {
    const socket = connect({ host, port }, () => socket.destroy());
    socket.on('error', () => {});
    socket.on('close', () => resolve());
  });

test('a capture has the frames of its addresses, from devices that it describes first, and none of the port itself', async () => {
  const { lines, stream } = response();
  createNetns(POD);
  try {
    {
      using inside = openRouteSocket(POD);
      const lo = getLink(inside, 'lo').index;
      setLink(inside, lo, { up: true });
      addAddress(inside, { device: lo, address: '192.0.2.77', prefix: 32 });
    }
    const capture = createNodeCapture(configuration);
    const body = {
      pods: [
        { name: 'shop/web', addresses: ['192.0.2.77'] },
        { name: 'shop/gone', addresses: ['192.0.2.78'] },
      ],
      addresses: ['127.0.0.9'],
      filter: 'tcp and host svc/x',
      names: { 'svc/x': ['127.0.0.9'] },
      snapBytes: 256,
    };
    const ended = capture(body, stream as unknown as ServerResponse);
    const placesOf = () => [
      ...new Set(lines.flatMap((line) => (line.type === 'device' ? line.place.name : []))),
    ];
    await eventually(() => placesOf().length === 2);
    await reach('127.0.0.9', 10_268);
    await reach('127.0.0.8', 81);
    await reach('127.0.0.9', 81);
    const framesOf = () => lines.flatMap((line) => (line.type === 'frame' ? line : []));
    await eventually(() => framesOf().length >= 2);
    stream.destroy();
    await ended;
    assert.deepEqual(placesOf().sort(), ['n1', 'pod shop/web']);
    const ports = framesOf().map(({ data }) => {
      const { source, destination, ports: found } = readFrame(Buffer.from(data, 'base64'), null) ?? {};
      return destination === '127.0.0.9' ? found?.destination : source === '127.0.0.9' ? found?.source : null;
    });
    assert.deepEqual([...new Set(ports)], [81]);
  } finally {
    stream.destroy();
    removeNetns(POD);
  }
});

test('at most two captures run; a malformed request starts none', async () => {
  const capture = createNodeCapture(configuration);
  const first = response();
  const second = response();
  const body = { snapBytes: 64 };
  const running = [first, second].map(({ stream }) => capture(body, stream as unknown as ServerResponse));
  await assert.rejects(capture(body, response().stream as unknown as ServerResponse), { status: 429 });
  for (const { lines } of [first, second]) await eventually(() => lines.length > 0);
  first.stream.destroy();
  second.stream.destroy();
  await Promise.all(running);
  for (const wrong of [{}, { snapBytes: 0 }, { snapBytes: 1 << 20 }])
    await assert.rejects(capture(wrong, response().stream as unknown as ServerResponse), /not a length/);
  await assert.rejects(
    capture({ ...body, filter: 'and and' }, response().stream as unknown as ServerResponse),
    /filter/,
  );
});
