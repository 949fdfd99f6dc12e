import { startDatagramServer } from '../kernel/datagram-server.ts';
import { bindUdpIn, localPort } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Logger } from '../lib/log.ts';
import { MAX_QUERY_BYTES, MAX_UDP_BYTES, type Responder } from './responder.ts';
import type { SourceShare } from './source-share.ts';

/** Receive buffer for a burst: the kernel's default holds about 200 queries. */
const RECEIVE_BUFFER_BYTES = 4 << 20;

export type UdpBinding =
  | { readonly address: string; readonly port: number; readonly family: IPFamily }
  | { readonly fd: number; readonly family: IPFamily };

export interface UdpListener {
  readonly port: number;
  /** See DatagramServer. */
  finish(isKept: boolean): Promise<void>;
  close(): void;
}

/** Answers queries over UDP. `share`: bounds each client; null: unbounded. Throws the system's error if it cannot bind. */
export function listenUdp(
  binding: UdpBinding,
  respond: Responder,
  logger: Logger,
  share: SourceShare | null = null,
): UdpListener {
  const fd = 'fd' in binding ? binding.fd : bindUdpIn(null, binding.address, binding.port);
  const port = localPort(fd);
  const server = startDatagramServer({
    fd,
    maxRequestBytes: MAX_QUERY_BYTES,
    maxAnswerBytes: MAX_UDP_BYTES,
    receiveBufferBytes: RECEIVE_BUFFER_BYTES,
    admit: share ? (source) => share.admit(source) : undefined,
    answer: (bytes, source) => {
      const charge = share ? (queries: number) => share.charge(source, queries) : undefined;
      const answer = respond(bytes, 'udp', binding.family, source, charge);
      if (!share || !(answer instanceof Promise)) return answer;
      share.wait(source, 1);
      return answer.finally(() => share.wait(source, -1));
    },
    // Errors of a client that has exited (ICMP) or is unreachable affect only its own answer.
    onError: (error) => logger.debug({ error: error.message }, 'UDP socket'),
  });
  return { port, finish: (isKept) => server.finish(isKept), close: () => server.close() };
}
