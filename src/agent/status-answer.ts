import { get } from 'node:http';
import { afterRunning, systemClock } from '../lib/clock.ts';
import { SERVER_HEADER } from '../proxy/status-servers.ts';

/** An answer of a node proxy's server for health or metrics. */
export interface StatusAnswer {
  /** Whether an agent of Fairlead answered. */
  readonly isAgents: boolean;
  readonly body: string;
}

/** How long an answer may take as a whole. */
const ANSWER_MS = 1000;
const MAX_BODY = 4096;

/** Asks a node proxy's server, by default on this node's loopback. Null: none listens there, or it uses another protocol. */
export function askStatus(port: number, path: string, host = '127.0.0.1'): Promise<StatusAnswer | null> {
  return new Promise((resolve) => {
    const request = get({ host, port, path, agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += String(chunk).slice(0, MAX_BODY - body.length);
        // Any program may listen there, and write without end.
        if (body.length < MAX_BODY) return;
        request.destroy();
        resolve(null);
      });
      response.on('end', () => resolve({ isAgents: response.headers.server === SERVER_HEADER, body }));
      response.on('error', () => resolve(null));
    });
    const cancelTimeout = afterRunning(systemClock, ANSWER_MS, () => {
      request.destroy();
      resolve(null);
    });
    request.on('error', () => resolve(null));
    request.on('close', cancelTimeout);
  });
}
