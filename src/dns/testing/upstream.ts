import { bindUdpIn, listenTcpIn } from '../../kernel/netns.ts';
import { silentLogger } from '../../lib/log.ts';
import { decodeHeader, decodeQuery } from '../decode.ts';
import { encodeMessage } from '../encode.ts';
import { type Answer, type Query, RCODE, TYPE } from '../message.ts';
import type { Transport } from '../metrics.ts';
import { DEFAULT_TCP_LIMITS, listenTcp, type TcpListener } from '../tcp-listener.ts';
import { listenUdp, type UdpListener } from '../udp-listener.ts';

const DNS_PORT = 53;

export interface FakeUpstream {
  readonly address: string;
  /** "NAME TYPE/transport" of every received query. */
  readonly asked: string[];
  close(): Promise<void>;
}

/**
 * Starts a name server on loopback with the given answers; null: no answer, 'truncated' sets TC; FORMERR is
 * sent without EDNS, as from older servers. `at`: in another network namespace (null: this one), at port 53 of an address.
 */
export async function startUpstream(
  answer: (query: Query, transport: Transport) => Answer | 'truncated' | null,
  at?: { readonly netns: string | null; readonly address: string },
): Promise<FakeUpstream> {
  const asked: string[] = [];
  const respond = (bytes: Uint8Array, transport: Transport) => {
    const header = decodeHeader(bytes);
    const query = header && decodeQuery(bytes, header);
    if (!query || 'refuse' in query) return null;
    const type = Object.entries(TYPE).find(([, number]) => number === query.question.type)?.[0];
    asked.push(`${query.question.name} ${type}/${transport}`);
    const given = answer(query, transport);
    if (given === null) return null;
    return encodeMessage({
      header: {
        ...query,
        response: true,
        truncated: given === 'truncated',
        recursionAvailable: true,
        rcode: given === 'truncated' ? 0 : given.rcode,
      },
      question: query.question,
      answers: given === 'truncated' ? [] : given.answers,
      authorities: given === 'truncated' ? [] : given.authorities,
      additionals: [],
      edns:
        given !== 'truncated' && given.rcode === RCODE.FORMERR
          ? null
          : query.edns && { udpSize: 1232, version: 0, dnssecOk: query.edns.dnssecOk },
    });
  };
  if (at !== undefined) {
    const family = at.address.includes(':') ? 'ipv6' : 'ipv4';
    const [udpFd, tcpFd] = [bindUdpIn, listenTcpIn].map((open) => open(at.netns, at.address, DNS_PORT));
    const udp = listenUdp({ fd: udpFd ?? -1, family }, respond, silentLogger);
    const tcp = await listenTcp({ fd: tcpFd ?? -1, family }, respond, silentLogger, DEFAULT_TCP_LIMITS);
    return { address: at.address, asked, close: () => closeBoth(udp, tcp) };
  }
  for (;;) {
    const udp = listenUdp({ address: '127.0.0.1', port: 0, family: 'ipv4' }, respond, silentLogger);
    const { port } = udp;
    try {
      const tcp = await listenTcp(
        { address: '127.0.0.1', port, family: 'ipv4' },
        respond,
        silentLogger,
        DEFAULT_TCP_LIMITS,
      );
      return {
        address: `127.0.0.1:${port}`,
        asked,
        close: () => closeBoth(udp, tcp),
      };
    } catch {
      // The port is in use for TCP: try the next one.
      udp.close();
    }
  }
}

async function closeBoth(udp: UdpListener, tcp: TcpListener): Promise<void> {
  await tcp.close();
  udp.close();
}
