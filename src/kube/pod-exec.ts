import type { RawData } from 'ws';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Credentials } from './credentials.ts';
import { openApiWebSocket, readRefusal } from './web-socket.ts';

/** A command in a container of a pod. */
export interface PodCommand {
  readonly namespace: string;
  readonly pod: string;
  /** Absent: the first. */
  readonly container?: string | undefined;
  readonly command: readonly string[];
  /** Standard input; absent: none. */
  readonly input?: string | undefined;
  /** Bytes of each output; a command that writes more is abandoned. */
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
}

export interface PodCommandResult {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

// Channels of v5.channel.k8s.io (KEP-4006).
const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const STATUS = 3;
const CLOSE = 255;
const MAX_MESSAGE_BYTES = 1 << 20;
const OP = 'run a command in a pod';

/**
 * Runs a command in a container by the API server's `exec`. Resolves to the end of the command; rejects with FairleadError if it
 * cannot be started, writes too much, or the connection is lost, and with the reason of `signal` if that aborts.
 */
export function execInPod(credentials: Credentials, options: PodCommand): Promise<PodCommandResult> {
  const { input, maxOutputBytes, signal } = options;
  const { promise, resolve, reject } = Promise.withResolvers<PodCommandResult>();
  if (signal.aborted) {
    reject(signal.reason);
    return promise;
  }
  const socket = openApiWebSocket(credentials, {
    path: execPath(options),
    protocol: 'v5.channel.k8s.io',
    maxMessageBytes: MAX_MESSAGE_BYTES,
  });
  const outputs: Record<number, Buffer[]> = { [STDOUT]: [], [STDERR]: [] };
  let received = 0;
  const fail = (error: unknown) => {
    reject(error);
    socket.terminate();
  };
  const abort = () => fail(signal.reason);
  signal.addEventListener('abort', abort);
  socket.on('open', () => {
    if (input === undefined) return;
    socket.send(Buffer.concat([Uint8Array.of(STDIN), Buffer.from(input)]));
    socket.send(Uint8Array.of(CLOSE, STDIN));
  });
  socket.on('message', (data) => {
    const message = bytesOf(data);
    const channel = message[0] ?? STDOUT;
    const bytes = message.subarray(1);
    if (channel === STATUS) {
      try {
        const status = exitStatusOf(bytes.toString('utf8'));
        resolve({ status, stdout: textOf(outputs[STDOUT]), stderr: textOf(outputs[STDERR]) });
      } catch (error) {
        reject(error);
      }
      socket.close();
      return;
    }
    received += bytes.length;
    if (received > maxOutputBytes)
      return fail(failure(`it wrote more than ${maxOutputBytes} bytes`, 'EFBIG'));
    outputs[channel]?.push(bytes);
  });
  socket.on('error', (error) => reject(failure(messageOf(error), 'EIO', error)));
  socket.on('unexpected-response', (_request, response) => {
    void readRefusal(response).then((text) => fail(failure(text, 'not-running')));
  });
  socket.on('close', () => {
    signal.removeEventListener('abort', abort);
    reject(failure('the node or the control plane has closed the connection', 'EPIPE'));
  });
  return promise;
}

const failure = (message: string, code: 'EFBIG' | 'EIO' | 'EPIPE' | 'not-running', cause?: unknown) =>
  new FairleadError(`failed to ${OP}: ${message}`, { op: OP, code, ...(cause ? { cause } : {}) });

/** Returns the exit status that a meta/v1 Status reports. Throws FairleadError if it reports that the command did not run. */
export function exitStatusOf(text: string): number {
  const { status, reason, message, details } = JSON.parse(text) as {
    readonly status?: string;
    readonly reason?: string;
    readonly message?: string;
    readonly details?: {
      readonly causes?: readonly { readonly reason?: string; readonly message?: string }[];
    };
  };
  if (status === 'Success') return 0;
  const exit = details?.causes?.find((cause) => cause.reason === 'ExitCode')?.message ?? '';
  if (reason === 'NonZeroExitCode' && /^\d{1,3}$/.test(exit)) return Number(exit);
  throw failure(message ?? 'no reason is given', 'not-running');
}

function execPath({ namespace, pod, container, command, input }: PodCommand): string {
  const query = new URLSearchParams({ stdout: 'true', stderr: 'true' });
  if (input !== undefined) query.set('stdin', 'true');
  if (container !== undefined) query.set('container', container);
  for (const word of command) query.append('command', word);
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}/exec?${query}`;
}

const textOf = (chunks: readonly Buffer[] = []): string => Buffer.concat(chunks).toString('utf8');

const bytesOf = (data: RawData): Buffer =>
  Buffer.isBuffer(data) ? data : Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]);
