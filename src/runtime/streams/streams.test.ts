import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { deflateSync } from 'node:zlib';
import { WebSocket } from 'ws';
import { eventually } from '../../lib/testing/eventually.ts';
import { controlFrame, dataFrame, FLAG_FIN, FrameReader, type SpdyFrame } from './spdy-frames.ts';
import { createHeaderEncoder, HeaderDecoder } from './spdy-headers.ts';
import { SpdySession, type SpdyStream } from './spdy-session.ts';
import { type PodServer, startPodServer } from './testing/pod-server.ts';

let server: PodServer;
let echo: Server;
before(async () => {
  server = await startPodServer();
  echo = createServer((socket) => socket.pipe(socket));
  await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
});
after(async () => {
  echo.close();
  await server.close();
});

const POD = '/api/v1/namespaces/default/pods/p';

/** A WebSocket and all that comes over it, by channel. */
async function open(path: string, protocol: string) {
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}${POD}/${path}`, protocol);
  const channels: Record<number, string> = {};
  const base64 = protocol.includes('base64');
  socket.on('message', (data: Buffer) => {
    const channel = base64 ? (data[0] ?? 0) - 0x30 : (data[0] ?? 0);
    const content = base64 ? Buffer.from(data.toString('latin1', 1), 'base64') : data.subarray(1);
    channels[channel] = (channels[channel] ?? '') + content.toString('latin1');
  });
  const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()));
  await new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject));
  return { socket, channels, closed };
}

const exec = (...command: string[]) =>
  `exec?stdin=true&stdout=true&stderr=true&${command.map((word) => `command=${encodeURIComponent(word)}`).join('&')}`;

test('WebSocket channels of every version', async (t) => {
  const rows: [protocol: string, status: RegExp][] = [
    ['v5.channel.k8s.io', /"reason":"NonZeroExitCode".*"message":"4"/],
    ['v4.channel.k8s.io', /"reason":"NonZeroExitCode".*"message":"4"/],
    ['v4.base64.channel.k8s.io', /"reason":"NonZeroExitCode".*"message":"4"/],
    ['channel.k8s.io', /^command terminated with non-zero exit code: exit status 4$/],
    ['base64.channel.k8s.io', /^command terminated with non-zero exit code: exit status 4$/],
  ];
  for (const [protocol, status] of rows) {
    await t.test(protocol, async () => {
      const { socket, channels, closed } = await open(
        exec('sh', '-c', 'read x; echo "$x"; echo e >&2; exit 4'),
        protocol,
      );
      assert.equal(socket.protocol, protocol);
      const line = Buffer.from('hello\n');
      socket.send(
        protocol.includes('base64') ? `0${line.toString('base64')}` : Buffer.concat([Uint8Array.of(0), line]),
      );
      await closed;
      assert.equal(channels[1], 'hello\n');
      assert.equal(channels[2], 'e\n');
      assert.match(channels[3] ?? '', status);
    });
  }
});

test('v5: the end of the input is a separate message', async () => {
  const { socket, channels, closed } = await open(exec('cat'), 'v5.channel.k8s.io');
  socket.send(Buffer.from('\0all', 'latin1'));
  socket.send(Uint8Array.of(255, 0));
  await closed;
  assert.equal(channels[1], 'all');
  assert.deepEqual(JSON.parse(channels[3] ?? ''), { metadata: {}, status: 'Success' });
});

test('terminal sizes arrive', async () => {
  const { socket, closed } = await open(
    'exec?tty=true&stdin=true&stdout=true&command=cat',
    'v4.channel.k8s.io',
  );
  server.sizes.length = 0;
  socket.send(Buffer.from('\x04{"Width":80,"Height":24}{"Width":', 'latin1'));
  socket.send(Buffer.from('\x04100,"Height":50}', 'latin1'));
  while (server.sizes.length < 2) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(server.sizes, [
    { width: 80, height: 24 },
    { width: 100, height: 50 },
  ]);
  socket.close();
  await closed;
});

test('of 24 MiB in place of terminal sizes, the end is read', async () => {
  const { socket, closed } = await open(
    'exec?tty=true&stdin=true&stdout=true&command=cat',
    'v4.channel.k8s.io',
  );
  server.sizes.length = 0;
  // Before it was bounded, each of the pieces was parsed: for minutes, in which nothing else was done.
  socket.send(Buffer.concat([Uint8Array.of(4), Buffer.alloc(24 << 20, '}')]));
  socket.send(Buffer.from('\x04{"Width":80,"Height":24}', 'latin1'));
  await eventually(() => server.sizes.length === 1, Boolean, 20_000);
  assert.deepEqual(server.sizes, [{ width: 80, height: 24 }]);
  socket.close();
  await closed;
});

test('port-forward over WebSocket channels: two channels per port, each beginning with the port', async () => {
  const { port } = echo.address() as AddressInfo;
  const { socket, channels, closed } = await open(`portforward?ports=${port}&ports=1`, 'v4.channel.k8s.io');
  socket.send(Buffer.from('\0ping', 'latin1'));
  const low = Buffer.alloc(2);
  low.writeUInt16LE(port);
  while (!channels[0]?.endsWith('ping') || (channels[3]?.length ?? 0) < 3) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(channels[0], `${low.toString('latin1')}ping`);
  assert.equal(channels[1], low.toString('latin1'));
  assert.equal(channels[2], '\x01\0');
  assert.match(channels[3] ?? '', /^\x01\0error forwarding port 1 to pod: .*ECONNREFUSED/);
  socket.close();
  await closed;
});

test('port-forward over WebSocket channels ends when the pod ends its connection', async () => {
  const brief = createServer((socket) => socket.end('bye'));
  await new Promise<void>((resolve) => brief.listen(0, '127.0.0.1', resolve));
  const { port } = brief.address() as AddressInfo;
  const { channels, closed } = await open(`portforward?ports=${port}`, 'v4.channel.k8s.io');
  await closed;
  assert.equal((channels[0] ?? '').slice(2), 'bye');
  brief.close();
});

test('unsupported requests are refused with a reason', async (t) => {
  const rows: [
    behaviour: string,
    path: string,
    headers: Record<string, string>,
    status: number,
    message: RegExp,
  ][] = [
    [
      'another upgrade',
      'exec',
      { upgrade: 'h2c' },
      400,
      /"h2c" is not supported, use websocket or SPDY\/3.1/,
    ],
    [
      'an unknown stream protocol',
      'exec',
      { upgrade: 'SPDY/3.1', 'x-stream-protocol-version': 'v9.channel.k8s.io' },
      403,
      /none of the stream protocols v9.channel.k8s.io is supported/,
    ],
    [
      'an unknown subprotocol',
      'exec',
      { upgrade: 'websocket', 'sec-websocket-protocol': 'chat' },
      400,
      /none of the subprotocols chat/,
    ],
    [
      'a port that is none',
      'portforward?ports=99999',
      { upgrade: 'websocket', 'sec-websocket-protocol': 'v4.channel.k8s.io' },
      400,
      /must name the ports/,
    ],
  ];
  for (const [behaviour, path, headers, status, message] of rows) {
    await t.test(behaviour, async () => {
      const answer = await new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
        const outgoing = request({
          port: server.port,
          host: '127.0.0.1',
          path: `${POD}/${path}`,
          headers: { connection: 'Upgrade', ...headers },
        });
        outgoing.on('error', reject).on('response', (response) => {
          let text = '';
          response.on('data', (chunk) => {
            text += chunk;
          });
          response.on('end', () => resolve({ status: response.statusCode, text }));
        });
        outgoing.end();
      });
      assert.equal(answer.status, status);
      assert.match(answer.text, message);
      assert.match(String(server.errors.at(-1)), message);
    });
  }
});

test('SPDY frames are parsed from any chunks', () => {
  const bytes = Buffer.concat([
    controlFrame(6, 0, 7),
    dataFrame(1, 0, Buffer.from('hello')),
    dataFrame(3, FLAG_FIN, Buffer.alloc(0)),
  ]);
  for (const size of [1, 3, 8, 1000]) {
    const reader = new FrameReader();
    const frames: SpdyFrame[] = [];
    for (let at = 0; at < bytes.length; at += size)
      frames.push(...reader.push(bytes.subarray(at, at + size)));
    assert.deepEqual(
      joined(frames).map((frame) => [
        frame.type,
        frame.type === 'data' ? frame.stream : frame.kind,
        frame.flags,
        frame.payload.toString('latin1'),
      ]),
      [
        ['control', 6, 0, '\0\0\0\x07'],
        ['data', 1, 0, 'hello'],
        ['data', 3, FLAG_FIN, ''],
      ],
    );
  }
});

/** Joins the parts of data frames. */
function joined(frames: readonly SpdyFrame[]): SpdyFrame[] {
  const all: SpdyFrame[] = [];
  for (const frame of frames) {
    const last = all.at(-1);
    const isPart = last?.type === 'data' && frame.type === 'data' && last.stream === frame.stream;
    if (isPart) all.pop();
    all.push(isPart ? { ...frame, payload: Buffer.concat([last.payload, frame.payload]) } : frame);
  }
  return all;
}

test('a SPDY frame of 8 MiB in small writes is not kept', () => {
  const head = dataFrame(1, FLAG_FIN, Buffer.alloc(0));
  head.writeUIntBE(8 << 20, 5, 3);
  const reader = new FrameReader();
  const frames = [...reader.push(head)];
  const chunk = Buffer.alloc(1024, 'x');
  for (let at = 0; at < 8 << 20; at += chunk.length) {
    const parts = reader.push(chunk);
    // Each write is passed on as it is, without a copy.
    assert.deepEqual(
      parts.map((part) => part.payload.buffer === chunk.buffer && part.payload.length),
      [1024],
    );
    frames.push(...parts);
  }
  assert.equal(frames.length, 8192);
  assert.deepEqual(
    frames.filter(({ flags }) => flags === FLAG_FIN),
    frames.slice(-1),
  );
});

test('a SPDY control frame of 16 MiB is refused by its head', () => {
  const head = controlFrame(1, 0, Buffer.alloc(0));
  head.writeUIntBE(0xffffff, 5, 3);
  assert.throws(() => new FrameReader().push(head), /of 16777215 bytes is too long/);
});

/** A client and the server's session of one connection. */
/** Runs a command over SPDY as a client that opens the given streams, and returns their bytes when all but stdin have ended. */
async function overSpdy(query: string, types: readonly string[]): Promise<Record<string, string>> {
  const outgoing = request({
    port: server.port,
    host: '127.0.0.1',
    method: 'POST',
    path: `${POD}/exec?${query}`,
    headers: {
      connection: 'Upgrade',
      upgrade: 'SPDY/3.1',
      'x-stream-protocol-version': 'v4.channel.k8s.io',
    },
  });
  outgoing.end();
  const [, socket, head] = (await once(outgoing, 'upgrade')) as [unknown, Socket, Buffer];
  const encode = createHeaderEncoder();
  for (const [i, type] of types.entries()) {
    socket.write(controlFrame(1, 0, 2 * i + 1, 0, Buffer.alloc(2), encode(new Map([['streamtype', type]]))));
  }
  const received: Record<string, string> = {};
  const open = new Set(types.filter((type) => type !== 'stdin' && type !== 'resize'));
  const reader = new FrameReader();
  const read = (chunk: Buffer) => {
    for (const frame of reader.push(chunk)) {
      if (frame.type !== 'data') continue;
      const type = types[(frame.stream - 1) / 2] ?? '';
      received[type] = (received[type] ?? '') + frame.payload.toString();
      if (frame.flags & FLAG_FIN) open.delete(type);
    }
  };
  read(head);
  socket.on('data', read);
  await eventually(() => open.size === 0);
  socket.destroy();
  return received;
}

const echoed = 'command=echo&command=hi&stdout=true';
for (const [behaviour, query, types] of [
  ['the streams of its command', `${echoed}&stderr=true`, ['error', 'stdout', 'stderr']],
  ['one for stderr instead of the size of a terminal', `${echoed}&tty=true`, ['error', 'stdout', 'stderr']],
  ['one for the size of a terminal', `${echoed}&tty=true`, ['error', 'stdout', 'resize']],
  ['one more than its command has', `${echoed}&tty=true`, ['error', 'stdout', 'stderr', 'resize']],
] as const) {
  test(`a SPDY client gets output when it opens ${behaviour}`, async () => {
    const { stdout, error } = await overSpdy(query, types);
    assert.equal(stdout, 'hi\n');
    assert.match(error ?? '', /"Success"/);
  });
}

async function session(onStream: (stream: SpdyStream) => void) {
  const listener = createServer();
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const accepted = new Promise<Socket>((resolve) => listener.once('connection', resolve));
  const client = connect((listener.address() as AddressInfo).port, '127.0.0.1');
  const carrier = await accepted;
  const served = new SpdySession(carrier, Buffer.alloc(0), onStream);
  const close = () => {
    client.destroy();
    carrier.destroy();
    listener.close();
  };
  return { client, carrier, served, close };
}

test('the client ends a SPDY connection: an older one drops the last frames of one that ends', async (t) => {
  const { client, carrier, served, close } = await session(() => {});
  t.after(close);
  const kinds: number[] = [];
  const reader = new FrameReader();
  client.on('data', (chunk) => {
    for (const frame of reader.push(chunk)) if (frame.type === 'control') kinds.push(frame.kind);
  });
  served.close();
  await eventually(() => kinds.includes(7));
  assert.equal(carrier.writableEnded, false);
  client.end();
  await served.closed;
});

/** A stream of a client, which sends nothing. */
function openingFrames(count: number): Buffer {
  const encode = createHeaderEncoder();
  const frames = Array.from({ length: count }, (_, i) =>
    controlFrame(1, 0, 2 * i + 1, 0, Buffer.alloc(2), encode(new Map([['streamtype', 'error']]))),
  );
  return Buffer.concat(frames);
}

test('a SPDY client that opens streams without end has 1,024', async () => {
  let streams = 0;
  const { client, close } = await session(() => streams++);
  try {
    const reader = new FrameReader();
    let refused = 0;
    client.on('data', (chunk) => {
      for (const frame of reader.push(chunk)) if (frame.type === 'control' && frame.kind === 3) refused++;
    });
    client.write(openingFrames(3000));
    await eventually(() => refused === 3000 - 1024);
    assert.equal(streams, 1024);
  } finally {
    close();
  }
});

test('of what a SPDY client sends on many streams that are not read, little is kept; read later, all arrives', async () => {
  const [count, bytes] = [64, 200 * 1024];
  const streams: SpdyStream[] = [];
  const { client, carrier, close } = await session((stream) => streams.push(stream));
  try {
    client.resume();
    client.write(openingFrames(count));
    // Less than the buffer of each stream.
    for (let i = 0; i < count; i++) client.write(dataFrame(2 * i + 1, 0, Buffer.alloc(bytes)));
    let [last, looks] = [-1, 0];
    await eventually(() => {
      looks = carrier.bytesRead === last ? looks + 1 : 0;
      last = carrier.bytesRead;
      return looks >= 20 && streams.length > 0;
    });
    const kept = streams.reduce((sum, stream) => sum + stream.readableLength, 0);
    assert.ok(kept <= 5 << 20, `${kept} bytes are kept`);
    let read = 0;
    const readAll = () => {
      for (const stream of streams.splice(0))
        stream.on('data', (data: Buffer) => {
          read += data.length;
        });
      return read;
    };
    await eventually(readAll, (total) => total === count * bytes);
  } finally {
    close();
  }
});

test('port-forward over WebSocket channels: more ports than channels are refused', async () => {
  const ports = Array.from({ length: 128 }, () => 'ports=80').join('&');
  await assert.rejects(open(`portforward?${ports}`, 'v4.channel.k8s.io'), /400/);
});

test('a SPDY client that sends pings and reads nothing is no longer read', async () => {
  const { client, carrier, close } = await session(() => {});
  try {
    client.pause();
    const pings = Buffer.concat(Array.from({ length: 5000 }, () => controlFrame(6, 0, 1)));
    let sent = 0;
    let blocked = false;
    // 64 MiB, more than the kernel's buffers and the session's together.
    while (sent < 64 << 20 && !blocked) {
      sent += pings.length;
      if (!client.write(pings)) {
        const drained = new Promise<boolean>((resolve) => client.once('drain', () => resolve(false)));
        const stuck = eventually(
          () => carrier.writableLength > 1 << 20 || client.writableNeedDrain === false,
        );
        blocked = await Promise.race([drained, stuck.then(() => carrier.writableLength > 1 << 20)]);
      }
    }
    assert.ok(blocked, 'the session read everything');
    assert.ok(carrier.writableLength < 4 << 20, `${carrier.writableLength} bytes wait`);
  } finally {
    close();
  }
});

test('SPDY header blocks', async (t) => {
  await t.test('encoded blocks are decoded, one after the other', async () => {
    const encode = createHeaderEncoder();
    const decoder = new HeaderDecoder();
    for (const headers of [
      new Map([['streamtype', 'data']]),
      new Map(),
      new Map([
        ['a', '1'],
        ['b', '2'],
      ]),
    ]) {
      assert.deepEqual(await decoder.decode(encode(headers)), headers);
    }
    decoder.close();
  });
  await t.test('a block as the Go client compresses it', async () => {
    const decoder = new HeaderDecoder();
    const first = Buffer.from('78f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff', 'hex');
    const second = Buffer.from('c22ac5565c92925f5a02000000ffff', 'hex');
    assert.deepEqual(await decoder.decode(first), new Map([['streamtype', 'error']]));
    assert.deepEqual(await decoder.decode(second), new Map([['streamtype', 'stdout']]));
    decoder.close();
  });
  await t.test('malformed ones are refused', async () => {
    const rows: [bytes: Buffer, expected: RegExp][] = [
      [Buffer.from('not compressed'), /incorrect header check|invalid/],
      [deflateSync(Buffer.from([0, 0, 0, 9])), /ends early/],
      [deflateSync(Buffer.alloc(1_000_000)), /too long/],
    ];
    for (const [bytes, expected] of rows) {
      const decoder = new HeaderDecoder();
      await assert.rejects(decoder.decode(bytes), expected);
      decoder.close();
    }
  });
});
