import type { IncomingMessage } from 'node:http';
import { type Duplex, PassThrough, Readable, Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { FairleadError } from '../../lib/errors.ts';
import { type CommandResult, exitStatus, exitText } from './exit-status.ts';
import { SpdySession, type SpdyStream } from './spdy-session.ts';
import { choose, listed, openSpdy, openWebSocket, refuse, wantsWebSocket } from './upgrade.ts';
import { WebSocketChannels } from './websocket-channels.ts';

export interface RemoteCommandOptions {
  readonly stdin: boolean;
  readonly stdout: boolean;
  /** Never together with a terminal, which has one output. */
  readonly stderr: boolean;
  readonly tty: boolean;
}

export interface TerminalSize {
  readonly width: number;
  readonly height: number;
}

/** The client's streams of a command that runs on this node. */
export interface RemoteCommand {
  /** Ends when the client closes its half; immediately if the client sends no input. */
  readonly stdin: Readable;
  /** Applies the client's backpressure; discards output that was not requested. */
  readonly stdout: Writable;
  readonly stderr: Writable;
  /** Sizes of the client's terminal, the initial one first; ends with the connection. */
  readonly resizes: AsyncIterable<TerminalSize>;
  /** Aborts when the client disconnects. */
  readonly closed: AbortSignal;
  /**
   * Waits until all output is sent, reports the end of the command, and closes. Resolves when the client has
   * disconnected.
   */
  finish(result: CommandResult): Promise<void>;
}

const SPDY_PROTOCOLS = [
  'v5.channel.k8s.io',
  'v4.channel.k8s.io',
  'v3.channel.k8s.io',
  'v2.channel.k8s.io',
  'channel.k8s.io',
];
const WEBSOCKET_PROTOCOLS = [
  'v5.channel.k8s.io',
  'v4.channel.k8s.io',
  'v4.base64.channel.k8s.io',
  'channel.k8s.io',
  'base64.channel.k8s.io',
];

const STREAM_TYPES = new Set(['error', 'stdin', 'stdout', 'stderr', 'resize']);

/** Timeout for the client to open its streams after the upgrade. */
const STREAMS_MS = 30_000;
/** Timeout for the client to close the connection after the end was reported. */
const LINGER_MS = 5_000;

/**
 * Answers the upgrade of an exec or attach request and returns the client's streams: WebSocket channels (v5, v4 and the
 * older ones) or SPDY/3.1 streams (v5 to v1). An unsupported request is answered with an HTTP error, and a
 * FairleadError is thrown.
 */
export async function acceptRemoteCommand(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  options: RemoteCommandOptions,
): Promise<RemoteCommand> {
  return wantsWebSocket(request, socket)
    ? await acceptWebSocket(request, socket, head, options)
    : await acceptSpdy(request, socket, head, options);
}

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const ERROR = 3;
const RESIZE = 4;

async function acceptWebSocket(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  options: RemoteCommandOptions,
): Promise<RemoteCommand> {
  const offered = listed(request, 'sec-websocket-protocol');
  const protocol = choose(offered, WEBSOCKET_PROTOCOLS, true);
  if (protocol === null) {
    throw refuse(socket, 400, `none of the subprotocols ${offered.join(', ')} is supported`);
  }
  const webSocket = await openWebSocket(request, socket, head, protocol);
  const channels = new WebSocketChannels(webSocket, {
    inputs: [...(options.stdin ? [STDIN] : []), ...(options.tty ? [RESIZE] : [])],
    base64: protocol.includes('base64'),
  });
  // Some clients wait for a first message before they send.
  const first = options.stdout ? STDOUT : options.stderr ? STDERR : ERROR;
  channels.send(first, Buffer.alloc(0), () => {});
  const gone = new Promise<void>((resolve) => webSocket.once('close', () => resolve()));
  const stdout = options.stdout ? channels.output(STDOUT) : swallow();
  const stderr = options.stderr ? channels.output(STDERR) : swallow();
  const hasStatus = protocol.startsWith('v4') || protocol.startsWith('v5');
  return {
    stdin: channels.input(STDIN),
    stdout,
    stderr,
    resizes: terminalSizes(channels.input(RESIZE)),
    closed: channels.closed,
    async finish(result) {
      await flushed([stdout, stderr]);
      if (!channels.closed.aborted) {
        const message = hasStatus ? JSON.stringify(exitStatus(result)) : exitText(result);
        channels.send(ERROR, Buffer.from(message), () => {});
        channels.close();
      }
      await within(LINGER_MS, gone, () => webSocket.terminate());
    },
  };
}

async function acceptSpdy(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  options: RemoteCommandOptions,
): Promise<RemoteCommand> {
  const offered = listed(request, 'x-stream-protocol-version');
  const protocol = choose(offered, SPDY_PROTOCOLS, true);
  if (protocol === null) {
    throw refuse(socket, 403, `none of the stream protocols ${offered.join(', ')} is supported`);
  }
  openSpdy(socket, protocol);
  const version = Number(/^v(\d)/.exec(protocol)?.[1] ?? 1);
  // As the kubelet does, the streams are counted: a client may open one for stderr instead of one for the terminal's size.
  const wanted = [
    'error',
    ...(options.stdin ? ['stdin'] : []),
    ...(options.stdout ? ['stdout'] : []),
    ...(options.stderr ? ['stderr'] : []),
    ...(options.tty && version >= 3 ? ['resize'] : []),
  ];
  const streams = new Map<string, SpdyStream>();
  const resize = new PassThrough();
  const { promise: complete, resolve } = Promise.withResolvers<void>();
  const session = new SpdySession(socket, head, (stream) => {
    const type = stream.headers.get('streamtype') ?? '';
    if (!STREAM_TYPES.has(type) || streams.has(type)) {
      stream.destroy();
      return;
    }
    streams.set(type, stream);
    if (type === 'resize') stream.pipe(resize);
    else if (type !== 'stdin' || !options.stdin) stream.resume();
    if (streams.size === wanted.length) resolve();
  });
  void session.closed.then(() => resize.end());
  await within(STREAMS_MS, Promise.race([complete, session.closed]), () => session.destroy());
  if (streams.size < wanted.length) {
    throw new FairleadError('the client did not open the streams of the command', {
      op: 'accept a remote command',
      code: 'streams-missing',
      hint: `it opened ${[...streams.keys()].join(', ') || 'none'} of ${wanted.join(', ')}`,
    });
  }
  const closing = new AbortController();
  void session.closed.then(() => closing.abort());
  const stdout = streams.get('stdout') ?? swallow();
  const stderr = streams.get('stderr') ?? swallow();
  const error = streams.get('error') ?? swallow();
  return {
    stdin: (options.stdin ? streams.get('stdin') : null) ?? Readable.from([]),
    stdout,
    stderr,
    resizes: terminalSizes(resize),
    closed: closing.signal,
    async finish(result) {
      await flushed([stdout, stderr]);
      error.end(version >= 4 ? JSON.stringify(exitStatus(result)) : exitText(result));
      await flushed([error]);
      // Remaining input is discarded: unread bytes would reset the connection before the last response is delivered.
      streams.get('stdin')?.resume();
      session.close();
      await within(LINGER_MS, session.closed, () => session.destroy());
    },
  };
}

/** Ends outputs and waits until their bytes are sent, or the client has disconnected. */
async function flushed(outputs: readonly Writable[]): Promise<void> {
  await Promise.all(
    outputs.map(async (output) => {
      if (!output.writableEnded) output.end();
      // Writes to a disconnected client fail; `closed` notifies the caller.
      await finished(output, { readable: false }).catch(() => {});
    }),
  );
}

function swallow(): Writable {
  return new Writable({ write: (_chunk, _encoding, callback) => callback() });
}

/** Yields sizes from consecutive JSON objects: {"Width":80,"Height":24}. */
/** More than any message with a size. */
const MAX_SIZE_TEXT = 1024;

/** Reads the sizes; of a longer text those at its end, which are the latest. */
async function* terminalSizes(input: Readable): AsyncGenerator<TerminalSize> {
  let text = '';
  for await (const chunk of input) {
    // Each `}` in it is a piece to parse.
    text = `${text}${String((chunk as Buffer).subarray(-MAX_SIZE_TEXT))}`.slice(-MAX_SIZE_TEXT);
    for (let end = text.indexOf('}'); end >= 0; end = text.indexOf('}')) {
      const size = readSize(text.slice(0, end + 1));
      text = text.slice(end + 1);
      if (size) yield size;
    }
  }
}

function readSize(text: string): TerminalSize | null {
  try {
    const { Width: width, Height: height } = JSON.parse(text) as { Width?: unknown; Height?: unknown };
    return typeof width === 'number' && typeof height === 'number' ? { width, height } : null;
  } catch {
    // A client that sends other data gets no resizing.
    return null;
  }
}

/** Waits for `event`; after `ms` milliseconds calls `otherwise`, which should cause it. */
async function within(ms: number, event: Promise<void>, otherwise: () => void): Promise<void> {
  const timer = setTimeout(otherwise, ms);
  await event;
  clearTimeout(timer);
}
