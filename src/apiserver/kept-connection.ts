import type { ClientRequest } from 'node:http';
import { hasCode } from '../lib/errors.ts';

/**
 * Over which connection a request is sent: one that the agent may have kept from an earlier request, which its server may
 * be closing just then, or one of its own.
 */
export type Through = 'kept' | 'own';

/** Returns the error to reject with for an error of a request. */
export type OnError = (request: ClientRequest, error: Error) => Error;

/** Sends one request and resolves to its response; passes the request's error through `onError`. */
export type Send<T> = (through: Through, onError: OnError) => Promise<T>;

/** Sends a request once, over this connection. For requests that cannot be repeated: a stream is read only once. */
export const sendOnce = <T>(send: Send<T>, through: Through): Promise<T> =>
  send(through, (_request, error) => error);

/**
 * Sends a request, and sends it again over a connection of its own if the server closed the kept one, as Go's client does
 * (shouldRetryRequest). For requests that can be repeated.
 */
export async function sendTwice<T>(send: Send<T>): Promise<T> {
  try {
    return await send('kept', (request, error) =>
      isClosed(request, error) ? new ClosedConnection(error.message) : error,
    );
  } catch (error) {
    if (!(error instanceof ClosedConnection)) throw error;
    return await sendOnce(send, 'own');
  }
}

/** Returns true if the server closed a kept connection, probably because it was idle, when the request was sent. */
const isClosed = (request: ClientRequest, error: unknown): boolean =>
  request.reusedSocket && hasCode(error, 'ECONNRESET', 'EPIPE');

class ClosedConnection extends Error {}
