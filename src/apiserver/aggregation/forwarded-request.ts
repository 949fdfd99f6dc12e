import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { messageOf } from '../../lib/errors.ts';
import { joinSockets } from '../joined-sockets.ts';
import { type Send, sendOnce, sendTwice } from '../kept-connection.ts';
import { forwardedHeaders, isConnectionHeader, upgradeHeaders } from '../requests/forwarded-headers.ts';
import type { OutgoingResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import { StatusError } from '../status-error.ts';
import type { RemoteApi } from './api-service.ts';
import type { RemoteClient } from './remote-client.ts';

/** Forwards a request to an aggregated server. Throws StatusError 503 if it does not answer. */
export async function forwardTo(
  client: RemoteClient,
  context: RequestContext,
  api: RemoteApi,
  path: string,
): Promise<OutgoingResponse> {
  if (!api.isAvailable) {
    throw new StatusError(503, 'ServiceUnavailable', `the server of ${api.name} is not available`, {});
  }
  const { request } = context;
  const headers = request.upgrade ? upgradeHeaders(request.headers) : forwardedHeaders(request.headers);
  const unreachable = (error: unknown) =>
    new StatusError(
      503,
      'ServiceUnavailable',
      `error trying to reach the server of ${api.name}: ${messageOf(error)}`,
      {},
    );
  const hasBody = request.method !== 'GET' && request.method !== 'HEAD';
  const pass: Send<OutgoingResponse> = (through, onError) =>
    new Promise((resolve, reject) => {
      const outgoing = client.open(
        api,
        { method: request.method, path, headers, user: context.user },
        through,
      );
      context.signal.addEventListener('abort', () => outgoing.destroy());
      outgoing.on('error', (error) => reject(onError(outgoing, error)));
      outgoing.on('close', () => reject(new Error('the connection was closed without an answer')));
      outgoing.on('response', (response: IncomingMessage) => {
        const answered = Object.entries(response.headers).filter(([name]) => !isConnectionHeader(name));
        resolve({
          status: response.statusCode ?? 502,
          headers: Object.fromEntries(answered) as Record<string, string | readonly string[]>,
          body: response,
        });
      });
      outgoing.on('upgrade', (response: IncomingMessage, socket: Duplex, head: Buffer) => {
        if (!request.upgrade) {
          socket.destroy();
          return;
        }
        resolve('upgraded');
        joinSockets(request.upgrade.socket, request.upgrade.head, response, socket, head);
      });
      if (!hasBody) outgoing.end();
      else {
        request
          .stream()
          .on('error', (error) => outgoing.destroy(error))
          .pipe(outgoing);
      }
    });
  try {
    if (request.upgrade) return await sendOnce(pass, 'own');
    return await (hasBody ? sendOnce(pass, 'kept') : sendTwice(pass));
  } catch (error) {
    throw unreachable(error);
  }
}
