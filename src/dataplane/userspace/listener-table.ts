import type { NetnsRef } from '../../kernel/netns.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import { afterRunning, type Clock, pause } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Frontend, Pool } from '../../service/model.ts';
import { deleteListenerFlows } from './listener-flows.ts';
import type { ListenerNode, OpenListener, PoolListener } from './pool-listener.ts';
import { endpointsAt } from './pool-proxy.ts';

/**
 * Running time during which a listener without rules still accepts connections in flight, and relays answers to datagrams:
 * longer than the second after which clients repeat the first packet of a connection.
 */
const LINGER_MS = 1300;
/** How long a UDP listener stays open after that for clients that wait for answers. */
const AWAITED_MS = 5000;
/** How often their entries are looked for: a listing of connection tracking takes up to 10 ms. */
const MOVE_MS = 100;
/** How often `drain` counts the connections. */
const COUNT_MS = 20;

/** The states of a listener, in their order; a closed one is no longer in the table. */
type ListenerState =
  /** Rules lead to it from so many frontends. */
  | { readonly kind: 'serving'; uses: number }
  /** Without a frontend; its rules are about to be removed. */
  | { readonly kind: 'unused' }
  /** Without rules; accepts connections in flight. */
  | { readonly kind: 'lingering'; readonly cancel: () => void }
  /** Accepts none; its connections continue. */
  | { readonly kind: 'ending' };

interface Entry {
  readonly listener: PoolListener;
  state: ListenerState;
}

export interface ListenerTableOptions {
  readonly open: OpenListener;
  readonly clock: Clock;
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
}

/** The listeners of a node. A change acquires its listeners, releases the previous ones, and sweeps. */
export class ListenerTable {
  readonly #options: ListenerTableOptions;
  readonly #entries = new Map<PoolListener, Entry>();
  /** Serving entries, by pool. */
  readonly #serving = new Map<string, Entry>();
  /** Entries that accept connections or datagrams, by their address. */
  readonly #places = new Map<string, Entry>();
  /** Pools whose listeners may have no users left. */
  readonly #released = new Set<string>();
  #opened: PoolListener[] = [];
  #unused: PoolListener[] = [];
  #node: ListenerNode = { ipv4: null, ipv6: null, masqueradeBit: 0 };
  #earlier: ReadonlyMap<string, SocketAddress> = new Map();
  #lingered: PromiseWithResolvers<void> | null = null;
  #forgetting: Promise<void> = Promise.resolve();

  constructor(options: ListenerTableOptions) {
    this.#options = options;
  }

  /**
   * Prepares for a full sync: listeners will be acquired again, at this node's addresses, and on their `earlier` ports if
   * possible.
   */
  restart(node: ListenerNode, earlier: ReadonlyMap<string, SocketAddress>): void {
    this.#node = node;
    this.#earlier = earlier;
    this.releaseAll();
    for (const entry of [...this.#serving.values()]) {
      const { at, family } = entry.listener;
      if (at.ip !== node[family]) this.#discard(entry);
    }
  }

  /** Acquires the listener of a frontend's pool. Throws FairleadError if it cannot be opened. */
  take(pool: Pool, frontend: Frontend): PoolListener {
    let entry = this.#serving.get(pool.id);
    if (entry && !entry.listener.proxy.listening) {
      this.#discard(entry);
      entry = undefined;
    }
    entry?.listener.configure(pool, frontend);
    entry ??= this.#open(pool, frontend);
    if (entry.state.kind === 'serving') entry.state.uses++;
    return entry.listener;
  }

  release(pool: string): void {
    const state = this.#serving.get(pool)?.state;
    if (state?.kind !== 'serving') return;
    state.uses--;
    this.#released.add(pool);
  }

  releaseAll(): void {
    for (const [pool, { state }] of this.#serving) {
      if (state.kind === 'serving') state.uses = 0;
      this.#released.add(pool);
    }
  }

  /** Ends the use of listeners without a frontend. Returns those, and the opened ones, since the last sweep. */
  sweep(): { readonly opened: readonly PoolListener[]; readonly unused: readonly PoolListener[] } {
    for (const pool of this.#released) {
      const entry = this.#serving.get(pool);
      if (entry?.state.kind === 'serving' && entry.state.uses === 0) this.#discard(entry);
    }
    this.#released.clear();
    const swept = { opened: this.#opened, unused: this.#unused };
    this.#opened = [];
    this.#unused = [];
    return swept;
  }

  /**
   * Retires the unused listeners, whose rules are removed. After a switch to another mode (`succeeded`), datagrams in flight
   * through a UDP listener still arrive; otherwise these close at once.
   */
  retire(succeeded: boolean): void {
    const gone: SocketAddress[] = [];
    for (const entry of this.#entries.values()) {
      const { state, listener } = entry;
      if (state.kind === 'ending' && listener.proxy.active === 0) this.#entries.delete(listener);
      if (state.kind !== 'unused') continue;
      if (listener.protocol === 'UDP' && !succeeded) {
        this.#close(entry);
        gone.push(listener.at);
        continue;
      }
      const cancel = afterRunning(this.#options.clock, LINGER_MS, () => void this.#endLingering(entry));
      entry.state = { kind: 'lingering', cancel };
    }
    this.forget(gone);
  }

  get(pool: string): PoolListener | undefined {
    return this.#serving.get(pool)?.listener;
  }

  /** Returns the listener that accepts connections or datagrams at this address. */
  at(protocol: 'TCP' | 'UDP', address: SocketAddress): PoolListener | undefined {
    return this.#places.get(placeOf(protocol, address))?.listener;
  }

  /** Lists the serving listeners. */
  *[Symbol.iterator](): Generator<PoolListener> {
    for (const { listener } of this.#serving.values()) yield listener;
  }

  /** Lists all listeners that accept connections or have some. */
  all(): Iterable<PoolListener> {
    return this.#entries.keys();
  }

  get areLingering(): boolean {
    return [...this.#entries.values()].some(({ state }) => state.kind === 'lingering');
  }

  /** Resolves when no listener without rules accepts connections any longer. */
  async lingered(): Promise<void> {
    if (!this.areLingering) return;
    this.#lingered = Promise.withResolvers();
    await this.#lingered.promise;
  }

  /** The number of connections and UDP clients of all listeners. */
  get active(): number {
    return [...this.all()].reduce((sum, { proxy }) => sum + proxy.active, 0);
  }

  /** Ends the connections to these endpoints. Returns their number. */
  end(endpoints: readonly SocketAddress[]): number {
    const isGone = endpointsAt(endpoints);
    return [...this.all()].reduce((sum, { proxy }) => sum + proxy.end(isGone), 0);
  }

  /** Waits until all connections have ended; when `signal` aborts, resets those that remain, and returns their number. */
  async drain(signal: AbortSignal): Promise<number> {
    const { clock } = this.#options;
    while (!signal.aborted && (this.areLingering || this.active > 0)) await pause(clock, COUNT_MS, signal);
    const left = this.active;
    for (const { state, listener } of this.#entries.values())
      if (state.kind === 'lingering' || state.kind === 'ending') listener.proxy.close();
    return left;
  }

  /** `keepsConnections`: connections through listeners without rules continue until they end. */
  async close({ keepsConnections }: { readonly keepsConnections: boolean }): Promise<void> {
    for (const { state, listener } of this.#entries.values()) {
      if (state.kind === 'lingering') state.cancel();
      const isRetired = state.kind === 'lingering' || state.kind === 'ending';
      if (isRetired && keepsConnections) await listener.proxy.closeListener();
      else listener.proxy.close();
    }
  }

  /** Deletes the flows to closed listeners, except those of clients that are kept. */
  forget(gone: readonly SocketAddress[], keeps?: (client: SocketAddress) => boolean): Promise<void> {
    const { netns, logger } = this.#options;
    this.#forgetting = this.#forgetting.then(async () => {
      try {
        await deleteListenerFlows(gone, netns, keeps);
      } catch (error) {
        logger.warn({ error: messageOf(error) }, 'failed to delete flows to closed listeners');
      }
    });
    return this.#forgetting;
  }

  /** Resolves when the flows of closed listeners have been deleted. */
  forgotten(): Promise<void> {
    return this.#forgetting;
  }

  #open(pool: Pool, frontend: Frontend): Entry {
    const listener = this.#options.open(pool, frontend, this.#node, this.#earlier.get(pool.id));
    const entry: Entry = { listener, state: { kind: 'serving', uses: 0 } };
    this.#entries.set(listener, entry);
    this.#serving.set(pool.id, entry);
    this.#places.set(placeOf(listener.protocol, listener.at), entry);
    this.#opened.push(listener);
    return entry;
  }

  /** Ends the use of a serving listener. */
  #discard(entry: Entry): void {
    const { listener } = entry;
    entry.state = { kind: 'unused' };
    this.#serving.delete(listener.pool);
    this.#opened = this.#opened.filter((other) => other !== listener);
    this.#unused.push(listener);
  }

  /**
   * UDP clients that keep sending reach the other mode before the listener closes. Old entries also lead new requests here, of
   * clients that use a port again: their answers come first.
   */
  async #endLingering(entry: Entry): Promise<void> {
    const { proxy, protocol } = entry.listener;
    if (protocol === 'TCP') {
      await proxy.closeListener();
      entry.state = { kind: 'ending' };
      this.#leavePlace(entry);
    } else {
      await this.#awaitAnswers(entry.listener);
      this.#close(entry);
    }
    if (!this.areLingering) this.#lingered?.resolve();
  }

  async #awaitAnswers({ proxy, at }: PoolListener): Promise<void> {
    const { clock } = this.#options;
    const deadline = clock.now() + AWAITED_MS;
    let isKept: boolean;
    const keeps = (client: SocketAddress) => {
      const awaits = proxy.awaits(client);
      isKept ||= awaits;
      return awaits;
    };
    do {
      isKept = false;
      await this.forget([at], keeps);
      if (isKept) await pause(clock, MOVE_MS);
    } while (isKept && proxy.listening && clock.now() < deadline);
    if (isKept) await this.forget([at]);
  }

  #close(entry: Entry): void {
    entry.listener.proxy.close();
    this.#entries.delete(entry.listener);
    this.#leavePlace(entry);
  }

  /** Another listener may have the address by now. */
  #leavePlace(entry: Entry): void {
    const place = placeOf(entry.listener.protocol, entry.listener.at);
    if (this.#places.get(place) === entry) this.#places.delete(place);
  }
}

/** Listeners of different protocols may have the same address. */
export const placeOf = (protocol: 'TCP' | 'UDP', at: SocketAddress): string => `${protocol} ${hostPort(at)}`;
