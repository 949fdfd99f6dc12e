import type { Socket } from 'node:net';

/** Keepalive, which ends connections whose peer has disappeared without closing them. */
const KEEP_ALIVE_MS = 60_000;

/**
 * Copies bytes between two connected sockets in both directions, with half-close, back-pressure and propagation of
 * resets. Both sockets must allow half-open connections. `onClosed` is called once, when both are closed.
 */
export function relay(client: Socket, server: Socket, onClosed: () => void): void {
  let isOpen = true;
  for (const [one, other] of [
    [client, server],
    [server, client],
  ] as const) {
    one.setKeepAlive(true, KEEP_ALIVE_MS);
    one.on('error', () => reset(other));
    one.on('close', () => {
      // Closed before it has read all data, or sent its end: the other side would wait forever.
      if (!one.readableEnded || !one.writableFinished) reset(other);
      if (!isOpen || !client.destroyed || !server.destroyed) return;
      isOpen = false;
      onClosed();
    });
    one.pipe(other);
  }
}

/** Closes a socket with a reset, so that its peer does not take the end for a regular one. */
export function reset(socket: Socket): void {
  if (!socket.destroyed) socket.resetAndDestroy();
}
