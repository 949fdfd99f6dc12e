import { keepAlive } from '../../kernel/stream-socket.ts';
import type { Clock } from '../../lib/clock.ts';

/** How often sockets get keepalive, which takes effect after a minute. */
const TURN_MS = 1000;

/** Gives sockets keepalive that are open for a while: it costs four system calls, and most connections end sooner. */
export interface LateKeepalive {
  add(fd: number): void;
  /** Forgets a socket, before it is closed: its number may be in use again soon. */
  delete(fd: number): void;
  close(): void;
}

export function createLateKeepalive(clock: Clock): LateKeepalive {
  const waiting = new Set<number>();
  let cancel: (() => void) | null = null;

  function run(): void {
    cancel = null;
    for (const fd of waiting) keepAlive(fd);
    waiting.clear();
  }

  return {
    add(fd) {
      waiting.add(fd);
      cancel ??= clock.after(TURN_MS, run);
    },
    delete: (fd) => void waiting.delete(fd),
    close() {
      cancel?.();
      cancel = null;
      waiting.clear();
    },
  };
}
