import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { WebSocket } from 'ws';
import type { Credentials } from './credentials.ts';
import { createTunnelAgent, proxyOf } from './proxy-tunnel.ts';
import { trustPublicAuthorities } from './public-authorities.ts';

export interface ApiWebSocketOptions {
  /** Begins with "/" and includes the query. */
  readonly path: string;
  /** "v5.channel.k8s.io" */
  readonly protocol: string;
  /** Larger messages close the connection. */
  readonly maxMessageBytes: number;
}

/** Milliseconds for the connection and the answer to the upgrade. */
const HANDSHAKE_MS = 30_000;
const MAX_REFUSAL_BYTES = 64 << 10;

/** Opens a WebSocket to an API server; failures are its `error` and `unexpected-response` events. */
export function openApiWebSocket(
  credentials: Credentials,
  { path, protocol, maxMessageBytes }: ApiWebSocketOptions,
): WebSocket {
  const { server, ca, cert, key, serverName, insecure, tokenFile, headers } = credentials;
  const token = tokenFile === undefined ? credentials.token : readFileSync(tokenFile, 'utf8').trim();
  const base = new URL(server);
  const proxy = proxyOf(credentials, base);
  if (ca === undefined && insecure === undefined) trustPublicAuthorities();
  const scheme = base.protocol === 'https:' ? 'wss' : 'ws';
  return new WebSocket(`${scheme}://${base.host}${base.pathname.replace(/\/$/, '')}${path}`, [protocol], {
    handshakeTimeout: HANDSHAKE_MS,
    maxPayload: maxMessageBytes,
    perMessageDeflate: false,
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(serverName === undefined ? {} : { servername: serverName }),
    ...(insecure === undefined ? {} : { rejectUnauthorized: false }),
    headers: {
      ...(headers as Record<string, string | string[]> | undefined),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(proxy === null ? {} : { agent: createTunnelAgent(proxy, scheme === 'wss', {}) }),
  });
}

/** Reads the message of an API server that refuses: a meta/v1 Status, or text. */
export async function readRefusal(response: IncomingMessage): Promise<string> {
  let text = '';
  try {
    for await (const chunk of response) {
      text += String(chunk);
      if (text.length > MAX_REFUSAL_BYTES) break;
    }
    const { message } = JSON.parse(text) as { message?: unknown };
    if (typeof message === 'string' && message !== '') return message;
  } catch {
    // Text, or a connection that broke.
  }
  return text.trim() || `the API server answers ${response.statusCode}`;
}
