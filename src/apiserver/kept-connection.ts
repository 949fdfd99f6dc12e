import type { ClientRequest } from 'node:http';
import { hasCode } from '../lib/errors.ts';

/**
 * Over which connection a request is sent: one that the agent may have kept from an earlier request, which its server may
 * be closing just then, or one of its own.
 */
export type Through = 'kept' | 'own';

/**
 * Sends a request without a body, and sends it again over a connection of its own if the server closed the kept one, as
 * Go's client does (shouldRetryRequest). `send` resolves to the response, and calls `onError` for its request's error.
 */
export async function sendTwice<T>(
  send: (through: Through, onError: (request: ClientRequest, error: Error) => Error) => Promise<T>,
): Promise<T> {
  try {
    return await send('kept', (request, error) =>
      isClosed(request, error) ? new ClosedConnection(error.message) : error,
    );
  } catch (error) {
    if (!(error instanceof ClosedConnection)) throw error;
    return await send('own', (_request, error) => error);
  }
}

/** Returns true if the server closed a kept connection, probably because it was idle, when the request was sent. */
export const isClosed = (request: ClientRequest, error: unknown): boolean =>
  request.reusedSocket && hasCode(error, 'ECONNRESET', 'EPIPE');

class ClosedConnection extends Error {}
