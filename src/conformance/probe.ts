import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { Socket } from 'node:net';
import { canonicalAddress, type IPFamily } from '../lib/address.ts';
import { afterRunning, type Clock } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';
import type { LocalPlace, Place } from './fixture.ts';
import type { ProbeOrigin, ProbeSockets } from './probe-sockets.ts';

/** The outcome of one new connection (or datagram from a new port). */
export type Outcome =
  | { readonly kind: 'answer'; readonly server: string; readonly message: string; readonly client: string }
  | { readonly kind: 'refused' }
  | { readonly kind: 'silence' }
  | { readonly kind: 'failed'; readonly error: string };

/** One attempt to reach a server. */
export interface ProbeRequest<P extends Place> {
  readonly from: P;
  readonly protocol: 'TCP' | 'UDP';
  readonly family: IPFamily;
  readonly address: string;
  readonly port: number;
  /** The running time without an answer after which the outcome is silence, in milliseconds. */
  readonly patience: number;
}

/** Sends a probe; rejects only if it could not be sent. */
export type Prober<P extends Place> = (request: ProbeRequest<P>) => Promise<Outcome>;

/** Returns a prober for places on this machine. */
export const socketProber =
  (sockets: ProbeSockets, clock: Clock): Prober<LocalPlace> =>
  ({ protocol, ...request }) =>
    (protocol === 'TCP' ? probeTcp : probeUdp)({ ...request, sockets, clock });

export interface ProbeTarget {
  readonly sockets: ProbeSockets;
  readonly from: ProbeOrigin;
  readonly family: IPFamily;
  readonly address: string;
  readonly port: number;
  readonly clock: Clock;
  /** The running time without an answer after which the outcome is silence, in milliseconds. */
  readonly patience: number;
}

/** Sends a request to `fairlead echo` over a new connection. Never rejects. */
export function probeTcp(target: ProbeTarget): Promise<Outcome> {
  const { sockets, from, family, address, port, clock, patience } = target;
  return new Promise((resolve) => {
    const socket = new Socket({ fd: sockets.open(from, 'TCP', family) });
    const finish = (outcome: Outcome) => {
      cancel();
      socket.destroy();
      resolve(outcome);
    };
    const cancel = afterRunning(clock, patience, () => finish({ kind: 'silence' }));
    let received = '';
    socket.setEncoding('utf8').on('data', (text: string) => {
      received += text;
    });
    socket.on('end', () => finish(parseHttp(received)));
    socket.on('error', (error) => finish(failure(error)));
    socket.on('connect', () => socket.write('GET / HTTP/1.0\r\n\r\n'));
    socket.connect(port, address);
  });
}

/** Sends datagrams from a new port until one is answered. Never rejects. */
export function probeUdp(target: ProbeTarget): Promise<Outcome> {
  const { sockets, from, family, address, port, clock, patience } = target;
  return new Promise((resolve) => {
    const socket: UdpSocket = createSocket(family === 'ipv6' ? 'udp6' : 'udp4');
    const finish = (outcome: Outcome) => {
      cancel();
      clearInterval(again);
      socket.close();
      resolve(outcome);
    };
    const cancel = afterRunning(clock, patience, () => finish({ kind: 'silence' }));
    let again: NodeJS.Timeout | undefined;
    const send = () => socket.send('who are you');
    // A rejection is an ICMP message, which the kernel limits to a few per second: silence may still be a rejection.
    const keepSending = () => {
      send();
      again = setInterval(send, 300);
    };
    socket.on('message', (data) => {
      const [server = '', client = ''] = data.toString().trim().split(' ');
      finish({ kind: 'answer', server, message: '', client: plainAddress(client) });
    });
    socket.on('error', (error) => finish(failure(error)));
    socket.bind({ fd: sockets.open(from, 'UDP', family), exclusive: true }, () =>
      socket.connect(port, address, (error?: Error | null) =>
        error ? finish(failure(error)) : keepSending(),
      ),
    );
  });
}

/** "hello from NAME (you are ADDRESS)" */
function parseHttp(text: string): Outcome {
  const match = /\r\n\r\n(\S+) from (\S+) \(you are (\S+)\)/.exec(text);
  if (!match) return { kind: 'failed', error: text === '' ? 'closed without an answer' : `answered ${text}` };
  const [, message = '', server = '', client = ''] = match;
  return { kind: 'answer', server, message, client: plainAddress(client) };
}

/** Returns the canonical address of "1.2.3.4", "1.2.3.4:5" or "[::1]:5". */
function plainAddress(text: string): string {
  const bare = /^\[(.*)\]:[0-9]+$/.exec(text)?.[1] ?? /^([0-9.]+):[0-9]+$/.exec(text)?.[1] ?? text;
  return canonicalAddress(bare) ?? bare;
}

function failure(error: Error): Outcome {
  return hasCode(error, 'ECONNREFUSED') ? { kind: 'refused' } : { kind: 'failed', error: error.message };
}
