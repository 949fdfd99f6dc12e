import { get } from 'node:http';
import { SERVER_HEADER } from '../proxy/status-servers.ts';

/** An answer of a node proxy's server for health or metrics. */
export interface StatusAnswer {
  /** Whether an agent of Fairlead answered. */
  readonly isAgents: boolean;
  readonly body: string;
}

const ANSWER_MS = 1000;
const MAX_BODY = 4096;

/** Asks a server on this node's loopback. Null: no process listens on the port, or it uses another protocol. */
export function askStatus(port: number, path: string): Promise<StatusAnswer | null> {
  return new Promise((resolve) => {
    const request = get({ host: '127.0.0.1', port, path, timeout: ANSWER_MS, agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += String(chunk).slice(0, MAX_BODY);
      });
      response.on('end', () => resolve({ isAgents: response.headers.server === SERVER_HEADER, body }));
      response.on('error', () => resolve(null));
    });
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(null));
  });
}
