import type { NetnsRef } from '../kernel/netns.ts';
import { type NetworkEvent, watchNetwork } from '../kernel/rtnetlink/events.ts';
import { ROUTE_PROTOCOL } from '../kernel/rtnetlink/routes.ts';
import type { Clock } from '../lib/clock.ts';

/** The maintained state, to select relevant events. */
export interface MaintainedState {
  /** Indexes of the devices whose state and addresses are maintained. */
  isDevice(index: number): boolean;
  /** Names of the bridge's ports. */
  isPort(name: string): boolean;
  readonly bridge: number;
  isDestination(destination: string): boolean;
  /** Returns the MAC of the permanent neighbour entry of an address; null: none. */
  neighbourMac(address: string): string | null;
}

export interface DriftWatchOptions {
  readonly state: MaintainedState;
  readonly clock: Clock;
  /** Checks and repairs the maintained state; resolves to true if something was repaired. */
  readonly check: () => Promise<boolean>;
  readonly netns?: NetnsRef | undefined;
}

/** One change is often followed by others: a device that is set down loses its routes. */
const SETTLE_MS = 50;
/** The delay after a check that repaired something: two programs that revert each other's changes must not spin. */
const CONTEST_MS = 500;
/** For changes without events, such as those of most sysctls. */
const PERIOD_MS = 10_000;

/** Calls `check` soon after each event that may affect the maintained state, and every 10 s. */
export function watchDrift({ state, clock, check, netns }: DriftWatchOptions): { close(): void } {
  let closed = false;
  let running = false;
  let dueAt = Number.POSITIVE_INFINITY;
  let earliest = 0;
  let cancel = () => {};

  function schedule(delay: number): void {
    const at = Math.max(clock.now() + delay, earliest);
    if (closed || at >= dueAt) return;
    cancel();
    dueAt = at;
    cancel = clock.after(at - clock.now(), run);
  }

  function run(): void {
    dueAt = Number.POSITIVE_INFINITY;
    if (running) {
      schedule(SETTLE_MS);
      return;
    }
    running = true;
    check()
      .then((repaired) => {
        if (repaired) earliest = clock.now() + CONTEST_MS;
      })
      .finally(() => {
        running = false;
        schedule(PERIOD_MS);
      });
  }

  const watch = watchNetwork(
    ['link', 'address', 'route', 'neighbour', 'forwarding', 'setting'],
    (event) => {
      if (mayConcern(event, state)) schedule(SETTLE_MS);
    },
    netns,
  );
  schedule(PERIOD_MS);
  return {
    close() {
      closed = true;
      cancel();
      watch.close();
    },
  };
}

/** Returns true if an event may affect the maintained state. */
function mayConcern(event: NetworkEvent, state: MaintainedState): boolean {
  switch (event.kind) {
    case 'overrun':
    case 'setting':
      return true;
    case 'link': {
      const { link, gone } = event;
      if (state.isDevice(link.index)) return true;
      return state.isPort(link.name) && !gone && (!link.up || link.master !== state.bridge);
    }
    case 'address':
      return event.gone && state.isDevice(event.address.device);
    case 'route': {
      const ours = event.route.protocol === ROUTE_PROTOCOL.fairlead;
      return event.gone ? ours : !ours && state.isDestination(event.route.destination);
    }
    case 'neighbour': {
      const { neighbour, gone } = event;
      const mac = state.neighbourMac(neighbour.address);
      return mac !== null && (gone || !neighbour.permanent || neighbour.mac !== mac);
    }
    case 'forwarding':
      return event.gone && (state.isDevice(event.entry.device) || event.entry.master === state.bridge);
  }
}
