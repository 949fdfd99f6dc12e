import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFrame, TCP_FLAG } from '../../../kernel/packet.ts';
import { ETHERTYPE, openPacketSocket } from '../../../kernel/packet-socket.ts';
import { getLink, openRouteSocket } from '../../../kernel/rtnetlink/links.ts';
import { tcpChecksum } from '../../../kernel/tcp-segment.ts';

/** A SYN-ACK. */
export interface HeldAnswer {
  readonly frame: Uint8Array;
  readonly source: string;
}

export interface HeldAnswers extends Disposable {
  /** Returns those of the connection with most, by their sequence numbers. Earlier connections may still get one. */
  ofOneConnection(): HeldAnswer[];
  /** Passes one to TCP. */
  release(frame: Uint8Array): void;
}

const SYN_ACK = TCP_FLAG.syn | TCP_FLAG.ack;
const RULES = `table inet hold {
  chain in {
    type filter hook prerouting priority -300
    iifname "eth0" tcp flags & (syn | ack) == syn | ack drop
  }
}
`;

/** Keeps SYN-ACKs from the TCP of a pod, as a processor that does not run would. */
export function holdAnswers(netns: string): HeldAnswers {
  const connections = new Map<number, Map<number, HeldAnswer>>();
  using routes = openRouteSocket(netns);
  const open = (name: string, onFrame: (frame: Uint8Array) => void) =>
    openPacketSocket({
      ...{ device: getLink(routes, name).index, ethertype: ETHERTYPE.all, netns, onFrame },
      onError: (error) => assert.fail(error),
    });
  const entry = open('eth0', (frame) => {
    const { tcp, source, ports } = readFrame(frame, null) ?? {};
    if (!tcp || !source || !ports || (tcp.flags & SYN_ACK) !== SYN_ACK) return;
    const answers = connections.get(ports.destination) ?? new Map<number, HeldAnswer>();
    connections.set(ports.destination, answers);
    if (!answers.has(tcp.sequence)) answers.set(tcp.sequence, { frame, source });
  });
  const loopback = open('lo', () => {});
  const nft = (words: readonly string[], input?: string) =>
    execFileSync('ip', ['netns', 'exec', netns, 'nft', ...words], { input });
  nft(['-f', '-'], RULES);
  return {
    ofOneConnection: () =>
      [...connections.values()]
        .map((answers) => [...answers.values()])
        .sort((a, b) => b.length - a.length)[0] ?? [],
    release: (frame) => loopback.send(looped(frame)),
    [Symbol.dispose]() {
      nft(['delete', 'table', 'inet', 'hold']);
      entry.close();
      loopback.close();
    },
  };
}

/** Returns a frame for the loopback device, whose link addresses are zero; fills in the checksum that a veth pair leaves out. */
function looped(frame: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(frame).fill(0, 0, 12);
  const [addresses, length, header] = bytes[12] === 0x08 ? [26, 4, 34] : [22, 16, 54];
  const segment = bytes.subarray(header).fill(0, 16, 18);
  const source = bytes.subarray(addresses, addresses + length);
  const destination = bytes.subarray(addresses + length, addresses + 2 * length);
  new DataView(segment.buffer, segment.byteOffset).setUint16(16, tcpChecksum(source, destination, segment));
  return bytes;
}
