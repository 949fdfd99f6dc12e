import type { TerminalSize } from './terminal.ts';

/** How a shell has ended. */
export type ShellEnd =
  | { readonly kind: 'exited'; readonly code: number }
  /** The cluster refuses or has lost the shell. */
  | { readonly kind: 'failed'; readonly message: string }
  /** The command that serves the page has ended, or cannot be reached. */
  | { readonly kind: 'lost' };

export interface ShellConnection {
  send(input: Uint8Array): void;
  resize(size: TerminalSize): void;
  /** Ends the shell; `onEnd` is not called. */
  close(): void;
}

export interface ShellOptions {
  /** "namespace/name" */
  readonly pod: string;
  readonly container: string | null;
  readonly size: TerminalSize;
  /** Called when the shell has started. */
  readonly onOpen: () => void;
  /** `onShown` is to be called when the bytes have been shown, so that the shell does not run ahead. */
  readonly onOutput: (bytes: Uint8Array, onShown: () => void) => void;
  readonly onEnd: (end: ShellEnd) => void;
}

/** The channels of v5.channel.k8s.io: the first byte of each message. */
const STDIN = 0;
const STDOUT = 1;
const STATUS = 3;
const RESIZE = 4;
/** Far below the server's limit of a message; a paste can be longer. */
const MAX_INPUT_BYTES = 16 << 10;

/** Opens a shell in a pod through the server of the page. */
export function openShell({ pod, container, size, onOpen, onOutput, onEnd }: ShellOptions): ShellConnection {
  const query = new URLSearchParams({ pod, ...(container === null ? {} : { container }) });
  const url = new URL(`api/shell?${query}`, document.baseURI);
  url.protocol = 'ws:';
  const socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  let isOpen = false;
  let end: ShellEnd = { kind: 'lost' };
  const send = (channel: number, bytes: Uint8Array) => {
    if (socket.readyState !== WebSocket.OPEN) return;
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel;
    message.set(bytes, 1);
    socket.send(message);
  };
  const resize = ({ columns, rows }: TerminalSize) =>
    send(RESIZE, new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows })));
  socket.onopen = () => resize(size);
  socket.onmessage = ({ data }) => {
    const message = new Uint8Array(data as ArrayBuffer);
    if (message[0] === STATUS) end = readEnd(new TextDecoder().decode(message.subarray(1)));
    if (message[0] !== STDOUT) return;
    if (!isOpen) {
      isOpen = true;
      onOpen();
    }
    onOutput(message.subarray(1), () => {
      if (socket.readyState === WebSocket.OPEN) socket.send(String(message.length));
    });
  };
  socket.onclose = () => onEnd(end);
  return {
    send(input) {
      for (let at = 0; at < input.length; at += MAX_INPUT_BYTES)
        send(STDIN, input.subarray(at, at + MAX_INPUT_BYTES));
    },
    resize,
    close() {
      socket.onclose = null;
      socket.onmessage = null;
      socket.close();
    },
  };
}

/** Reads the end of a command: a meta/v1 Status as JSON. */
export function readEnd(text: string): ShellEnd {
  try {
    const status = JSON.parse(text) as {
      status?: string;
      message?: string;
      details?: { causes?: readonly { reason?: string; message?: string }[] };
    };
    if (status.status === 'Success') return { kind: 'exited', code: 0 };
    const code = status.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message;
    if (code !== undefined && /^\d+$/.test(code)) return { kind: 'exited', code: Number(code) };
    return { kind: 'failed', message: status.message ?? 'the cluster gives no reason' };
  } catch {
    return { kind: 'failed', message: text };
  }
}
