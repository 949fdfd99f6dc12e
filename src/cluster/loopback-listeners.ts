import { closeSync } from 'node:fs';
import { listenTcpIn, localPort } from '../kernel/netns.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { passedListener } from './rootless/passed-listeners.ts';

const MAX_ATTEMPTS = 100;

/** Listening TCP sockets on 127.0.0.1 and, if this machine has it, ::1. */
export interface LoopbackListeners {
  readonly port: number;
  /** File descriptors, owned by the caller. */
  readonly descriptors: readonly number[];
}

/**
 * Listens on a TCP port of the user's loopback, both families: that of this process, or that outside of an ordinary user's
 * namespaces, if the sockets were opened there. Port 0: one that is free in both. Throws FairleadError EADDRINUSE or EACCES with
 * the port and the alternative.
 */
export function listenOnLoopback(port: number): LoopbackListeners {
  const passed = passedListener(port);
  if (passed) return passed;
  for (let attempt = 1; ; attempt++) {
    const first = listenOn('127.0.0.1', port);
    if (first === null) throw unavailable('EADDRNOTAVAIL', port);
    const chosen = localPort(first);
    try {
      const second = listenOn('::1', chosen);
      return { port: chosen, descriptors: second === null ? [first] : [first, second] };
    } catch (error) {
      closeSync(first);
      if (port !== 0 || attempt === MAX_ATTEMPTS || !hasCode(error, 'EADDRINUSE')) throw error;
    }
  }
}

/** Throws FairleadError if a port of loopback cannot be listened on at this moment. */
export function checkLoopbackPort(port: number): void {
  if (passedListener(port)) return;
  for (const fd of listenOnLoopback(port).descriptors) closeSync(fd);
}

/** Listens on a port of 127.0.0.1 only. Throws FairleadError as `listenOnLoopback`. */
export function listenOnApiPort(port: number): LoopbackListeners {
  const fd = listenOn('127.0.0.1', port);
  if (fd === null) throw unavailable('EADDRNOTAVAIL', port);
  return { port, descriptors: [fd] };
}

/** Null: the machine does not have the address. */
function listenOn(address: string, port: number): number | null {
  try {
    return listenTcpIn(null, address, port);
  } catch (error) {
    if (hasCode(error, 'EADDRNOTAVAIL', 'EAFNOSUPPORT')) return null;
    if (hasCode(error, 'EADDRINUSE')) throw unavailable('EADDRINUSE', port, error);
    if (hasCode(error, 'EACCES', 'EPERM')) throw unavailable('EACCES', port, error);
    throw error;
  }
}

function unavailable(code: 'EADDRINUSE' | 'EACCES' | 'EADDRNOTAVAIL', port: number, cause?: unknown) {
  const texts = {
    EADDRINUSE: [
      `port ${port} of this machine is in use`,
      `choose another local port; the process that uses it: ss -ltnp 'sport = :${port}'`,
    ],
    EACCES: [`this process may not listen on port ${port}`, 'choose a local port from 1024 on, or use sudo'],
    EADDRNOTAVAIL: ['this machine has no address 127.0.0.1', 'ip link set lo up'],
  } as const;
  const [message, hint] = texts[code];
  return new FairleadError(message, { op: 'listen on loopback', code, hint, ...(cause ? { cause } : {}) });
}
