import { type RawData, WebSocket } from 'ws';
import type { Credentials } from '../kube/credentials.ts';
import { openApiWebSocket, readRefusal } from '../kube/web-socket.ts';
import { messageOf } from '../lib/errors.ts';

/** Bytes of output that the page may have received without having shown them. */
const WINDOW_BYTES = 256 << 10;
/** Input that the shell may leave unread. */
const MAX_INPUT_BYTES = 8 << 20;
/** Larger than any message of a node. */
const MAX_MESSAGE_BYTES = 1 << 20;
/** The channel of the protocol for the end of a command, a meta/v1 Status. */
const STATUS_CHANNEL = 3;
const PROTOCOL = 'v5.channel.k8s.io';
/** The better shell of those that the image has. */
const SHELL =
  'TERM=xterm-256color; export TERM; if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi';

/**
 * Connects the page's WebSocket to a shell in a container of a pod ("namespace/name"), until either side ends. The page
 * writes and reads the messages of v5.channel.k8s.io; the end is always a Status, unless the page ends first, which ends the
 * shell. A text message of the page is the number of bytes that it has shown: if too many are not shown yet, the shell's
 * output waits.
 */
export function connectShell(
  page: WebSocket,
  credentials: Credentials,
  { pod, container }: { readonly pod: string; readonly container: string | null },
): void {
  let cluster: WebSocket;
  try {
    cluster = openApiWebSocket(credentials, {
      path: execPath(pod, container),
      protocol: PROTOCOL,
      maxMessageBytes: MAX_MESSAGE_BYTES,
    });
  } catch (error) {
    endShell(page, messageOf(error));
    return;
  }
  let failure: string | null = null;
  let hasStatus = false;
  let notShown = 0;
  let waiting = 0;
  const send = (data: RawData) => {
    const { length } = bytesOf(data);
    cluster.send(data, () => {
      waiting -= length;
    });
  };
  cluster.on('message', (data, isBinary) => {
    const bytes = bytesOf(data);
    if (bytes[0] === STATUS_CHANNEL) hasStatus = true;
    notShown += bytes.length;
    if (notShown > WINDOW_BYTES) cluster.pause();
    page.send(bytes, { binary: isBinary });
  });
  // Input of the page before the shell has started, such as the size of the terminal.
  let early: RawData[] = [];
  cluster.on('open', () => {
    for (const message of early) send(message);
    early = [];
  });
  cluster.on('error', (error) => {
    failure ??= `the API server cannot be reached: ${error.message}`;
  });
  cluster.on('unexpected-response', (_request, response) => {
    void readRefusal(response).then((text) => {
      failure = text;
      cluster.terminate();
    });
  });
  cluster.on('close', () => {
    if (hasStatus) page.close(1000);
    else endShell(page, failure ?? 'the node or the control plane has closed the connection');
  });
  page.on('message', (data, isBinary) => {
    if (!isBinary) {
      const shown = /^\d{1,7}$/.exec(String(data))?.[0] ?? 0;
      notShown = Math.max(0, notShown - Number(shown));
      if (notShown <= WINDOW_BYTES) cluster.resume();
      return;
    }
    // The page is read always, since the end of a paused connection is not noticed.
    waiting += bytesOf(data).length;
    if (waiting > MAX_INPUT_BYTES) {
      failure = `it did not read ${MAX_INPUT_BYTES >> 20} MiB of input`;
      cluster.terminate();
    } else if (cluster.readyState === WebSocket.CONNECTING) early.push(data);
    else send(data);
  });
  // The 'close' event that follows is sufficient.
  page.on('error', () => {});
  // Without the closing handshake, for which a paused connection would wait.
  page.on('close', () => cluster.terminate());
}

/** Reports the end of a shell that did not start, or was lost, and closes the page's WebSocket. */
export function endShell(page: WebSocket, message: string): void {
  const status = { metadata: {}, status: 'Failure', message };
  page.send(Buffer.concat([Uint8Array.of(STATUS_CHANNEL), Buffer.from(JSON.stringify(status))]));
  page.close(1000);
}

function execPath(pod: string, container: string | null): string {
  const [namespace = '', name = ''] = pod.split('/');
  const query = new URLSearchParams({ stdin: 'true', stdout: 'true', tty: 'true' });
  if (container !== null) query.set('container', container);
  for (const word of ['/bin/sh', '-c', SHELL]) query.append('command', word);
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/exec?${query}`;
}

const bytesOf = (data: RawData): Buffer =>
  Buffer.isBuffer(data) ? data : Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]);
