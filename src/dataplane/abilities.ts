import type { SocketAddress } from '../lib/address.ts';
import type { OnFlowEvent } from './flow-event.ts';

/** The abilities of a mode beyond forwarding; fixed while it is open. Null: connection tracking has it, or nothing does. */
export interface Abilities {
  /** Connections that the mode tracks or copies itself. */
  readonly connections: OwnConnections | null;
  readonly listeners: OwnListeners | null;
  readonly flows: FlowSource | null;
  readonly counters: RuleCounters | null;
}

export interface OwnConnections {
  /** Ends connections to removed endpoints. Returns their number; null: the mode does not count them. */
  end(endpoints: readonly SocketAddress[]): Promise<number | null>;
  /**
   * Resolves when the connections that this process copies have ended; when `signal` aborts, resets those that remain, and
   * returns their number. Called after `remove`. Null: connections outlive the process.
   */
  readonly drain: ((signal: AbortSignal) => Promise<number>) | null;
}

export interface OwnListeners {
  /**
   * Returns true if this is the address of one of the mode's UDP listeners: connection tracking entries that lead to it are
   * not stale.
   */
  has(at: SocketAddress): boolean;
}

export interface FlowSource {
  /** Calls back for each event of flows through Services that the mode observes, until it is closed. */
  watch(onEvent: OnFlowEvent): { close(): void };
  /** Whether these are all flows through Services; if not, connection tracking observes the others. */
  readonly isComplete: boolean;
}

/** Packets counted by rules since they were written, of all families. */
export interface CountedPackets {
  /** Dropped because connection tracking calls them invalid. */
  readonly invalidDropped: number;
  /** First packets of connections to node ports on 127.0.0.0/8. */
  readonly loopbackAccepted: number;
}

export interface RuleCounters {
  /** Reads the counters; may overlap other calls. */
  read(): Promise<CountedPackets>;
}

/** A mode whose connections, flows and counters are all in the kernel's connection tracking. */
export const NO_ABILITIES: Abilities = { connections: null, listeners: null, flows: null, counters: null };
