import { Socket } from 'node:net';
import { type NetnsRef, openTcpIn } from '../kernel/netns.ts';
import { tcpInfo } from '../kernel/tcp-info.ts';
import type { SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';
import type { Outcome } from './outcome.ts';

/** The time to wait for a late answer. */
const MAX_LATE_MS = 3000;

/**
 * An answer after the timeout: `slow` if the endpoint took that long to answer, `healed` if earlier packets were
 * lost and a later one was answered in time.
 */
export type LateAnswer = 'slow' | 'healed';

/**
 * Connects to an endpoint by TCP and closes the connection. Any result except an answer or a refusal is a timeout. Null:
 * this process could not open a socket. `onLate` is called if the answer arrives after the timeout.
 */
export function dial(
  endpoint: SocketAddress,
  timeoutMs: number,
  clock: Clock,
  netns?: NetnsRef,
  onLate: (answer: LateAnswer) => void = () => {},
): Promise<Outcome['kind'] | null> {
  return new Promise((resolve) => {
    const { ip, port } = endpoint;
    let socket: Socket;
    let fd: number;
    try {
      fd = openTcpIn(netns ?? null, ip.includes(':') ? 'ipv6' : 'ipv4');
      socket = new Socket({ fd }).connect(port, ip);
    } catch {
      resolve(null);
      return;
    }
    let ended = false;
    const finish = (result: Outcome['kind'] | null) => {
      ended = true;
      cancel();
      socket.destroy();
      resolve(result);
    };
    const giveUp = () => {
      if (ended) return;
      resolve('timeout');
      cancel = clock.after(MAX_LATE_MS - timeoutMs, () => finish('timeout'));
      // Before the listener that closes the socket.
      socket.prependOnceListener('connect', () => onLate(lateAnswer(fd, timeoutMs)));
    };
    // An answer that arrived while this process was busy is read after the timer has fired.
    let cancel = clock.after(timeoutMs, () => setImmediate(giveUp));
    socket.once('connect', () => finish('success'));
    socket.on('error', (error) => {
      if (hasCode(error, 'EMFILE', 'ENFILE')) finish(null);
      else finish(hasCode(error, 'ECONNREFUSED') ? 'reset' : 'timeout');
    });
  });
}

/** Reads from the kernel which of the connection's SYNs was answered, and the time that this took. */
function lateAnswer(fd: number, timeoutMs: number): LateAnswer {
  const { rtt, retransmits } = tcpInfo(fd);
  return retransmits === 0 || rtt >= timeoutMs * 1000 ? 'slow' : 'healed';
}
