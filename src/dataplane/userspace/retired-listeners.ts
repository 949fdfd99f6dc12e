import type { NetnsRef } from '../../kernel/netns.ts';
import type { SocketAddress } from '../../lib/address.ts';
import { afterRunning, type Clock, pause } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { deleteListenerFlows } from './listener-flows.ts';
import { type PoolListener, placeOf } from './pool-listeners.ts';

/**
 * Running time during which a listener without rules still accepts connections in flight, and relays answers to datagrams:
 * longer than the second after which clients repeat the first packet of a connection.
 */
const LINGER_MS = 1300;
/** How long a UDP listener stays open after that for clients that wait for answers. */
const AWAITED_MS = 5000;
/** How often their entries are looked for: a listing of connection tracking takes up to 10 ms. */
const MOVE_MS = 100;

/** Listeners without rules that are still listening or still have connections. */
export interface RetiredListeners {
  /**
   * Retires listeners. After a switch to another mode (`succeeded`), datagrams in flight through a UDP listener still arrive;
   * otherwise these close at once.
   */
  retire(unused: readonly PoolListener[], succeeded: boolean): void;
  /** Deletes the flows to closed listeners, except those of clients that are kept. */
  forget(gone: readonly SocketAddress[], keeps?: (client: SocketAddress) => boolean): Promise<void>;
  all(): Iterable<PoolListener>;
  /** Returns a listener that still accepts connections or datagrams. */
  at(protocol: PoolListener['protocol'], at: SocketAddress): PoolListener | undefined;
  readonly areLingering: boolean;
  /** Resolves when none accepts connections any longer. */
  lingered(): Promise<void>;
  /** Resolves when the flows of closed listeners have been deleted. */
  forgotten(): Promise<void>;
  close(options: { readonly keepsConnections: boolean }): Promise<void>;
}

export interface RetiredListenersOptions {
  readonly clock: Clock;
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
}

export function createRetiredListeners({ clock, netns, logger }: RetiredListenersOptions): RetiredListeners {
  const retired = new Map<PoolListener, () => void>();
  /** Those that still accept connections. */
  const lingering = new Map<string, PoolListener>();
  let lingered: PromiseWithResolvers<void> | null = null;
  let forgetting: Promise<void> = Promise.resolve();

  function retire(unused: readonly PoolListener[], succeeded: boolean): void {
    for (const [listener] of retired)
      if (listener.proxy.active === 0 && !listener.proxy.listening) retired.delete(listener);
    const gone: SocketAddress[] = [];
    for (const listener of unused) {
      const { proxy, protocol, at } = listener;
      if (protocol === 'UDP' && !succeeded) {
        proxy.close();
        gone.push(at);
        continue;
      }
      const cancel = afterRunning(clock, LINGER_MS, () => void endLingering(listener));
      lingering.set(placeOf(protocol, at), listener);
      retired.set(listener, cancel);
    }
    forget(gone);
  }

  /**
   * UDP clients that keep sending reach the other mode before the listener closes. Old entries also lead new requests here, of
   * clients that use a port again: their answers come first.
   */
  async function endLingering(listener: PoolListener): Promise<void> {
    const { proxy, protocol, at } = listener;
    if (protocol === 'TCP') await proxy.closeListener();
    else {
      const deadline = clock.now() + AWAITED_MS;
      let isKept: boolean;
      const keeps = (client: SocketAddress) => {
        const awaits = proxy.awaits(client);
        isKept ||= awaits;
        return awaits;
      };
      do {
        isKept = false;
        await forget([at], keeps);
        if (isKept) await pause(clock, MOVE_MS);
      } while (isKept && proxy.listening && clock.now() < deadline);
      if (isKept) await forget([at]);
      proxy.close();
    }
    lingering.delete(placeOf(protocol, at));
    if (lingering.size === 0) lingered?.resolve();
  }

  function forget(gone: readonly SocketAddress[], keeps?: (client: SocketAddress) => boolean): Promise<void> {
    forgetting = forgetting.then(async () => {
      try {
        await deleteListenerFlows(gone, netns, keeps);
      } catch (error) {
        logger.warn({ error: messageOf(error) }, 'failed to delete flows to closed listeners');
      }
    });
    return forgetting;
  }

  return {
    retire,
    forget,
    all: () => retired.keys(),
    at: (protocol, at) => lingering.get(placeOf(protocol, at)),
    get areLingering() {
      return lingering.size > 0;
    },
    async lingered() {
      if (lingering.size === 0) return;
      lingered = Promise.withResolvers();
      await lingered.promise;
    },
    forgotten: () => forgetting,
    async close({ keepsConnections }) {
      for (const [listener, cancel] of retired) {
        cancel();
        if (keepsConnections) await listener.proxy.closeListener();
        else listener.proxy.close();
      }
    },
  };
}
