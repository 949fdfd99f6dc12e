import type { ManualClock } from '../../lib/clock.ts';
import type { ServerAddress } from '../failover-transport.ts';
import { type ApiRequest, type ApiResponse, httpTransport, type Transport } from '../transport.ts';

/**
 * up: answers. refused: no connection. broken: connections break after a request. cut: they break within the answer, and
 * there are no further ones. silent: no answer. unready: all answers are 503. failing: requests get 500, though the server
 * says that it is ready.
 */
export type ServerState = 'up' | 'refused' | 'broken' | 'cut' | 'silent' | 'unready' | 'failing';

/** API servers of one letter each that do what a test tells them, and note what they are asked: "a GET /x". */
export interface ScriptedServers {
  readonly states: Map<string, ServerState>;
  /** The requests, without the questions whether a server is ready. */
  readonly asked: string[];
  /** The servers that were asked whether they are ready. */
  readonly probed: string[];
  address(letter: string): ServerAddress;
  open(address: ServerAddress): Transport & { close(): void };
}

export function scriptedServers(letters: string): ScriptedServers {
  const servers: ScriptedServers = {
    states: new Map([...letters].map((letter) => [letter, 'up'])),
    asked: [],
    probed: [],
    address: (letter) => ({ url: letter, serverName: null }),
    open: ({ url: letter }) =>
      Object.assign((request: ApiRequest) => answer(servers, letter, request), { close() {} }),
  };
  return servers;
}

async function answer(servers: ScriptedServers, letter: string, request: ApiRequest): Promise<ApiResponse> {
  const { method, path, signal } = request;
  const isProbe = path === '/readyz';
  if (isProbe) servers.probed.push(letter);
  else servers.asked.push(`${letter} ${method} ${path}`);
  const state = servers.states.get(letter) ?? 'refused';
  if (state === 'silent') {
    return await new Promise<never>((_, reject) => {
      signal?.addEventListener('abort', () => reject(signal.reason as Error));
    });
  }
  // A real one, so that it is known not to have been sent.
  if (state === 'refused' || (state === 'cut' && isProbe))
    return await httpTransport({ server: 'http://127.0.0.1:1' })(request);
  if (state === 'broken') throw new Error('read ECONNRESET');
  const status = state === 'unready' ? 503 : state === 'failing' && !isProbe ? 500 : 200;
  return { status, headers: {}, body: body(letter, state === 'cut') };
}

async function* body(text: string, isCut: boolean) {
  yield Buffer.from(text);
  if (isCut) throw new Error('read ETIMEDOUT');
}

/** Lets everything happen that waits for nothing but the event loop, then advances the clock in steps. */
export async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let left = ms; ; left -= 100) {
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
    if (left <= 0) return;
    clock.advance(Math.min(100, left));
  }
}
