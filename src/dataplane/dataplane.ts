import type { NetnsRef } from '../kernel/netns.ts';
import type { IPFamily, SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Change, Frontend, Packet, ServiceMap } from '../service/model.ts';
import type { Abilities } from './abilities.ts';

export type Mode = 'userspace' | 'iptables' | 'ipvs' | 'nftables' | 'ebpf';

/** The result of programming a map, for metrics and the log. Durations in milliseconds. */
export interface ApplyReport {
  readonly encodeMs: number;
  readonly kernelMs: number;
  /** Number of messages, elements or lines written, depending on the mode. */
  readonly operations: number;
  /** In iptables mode: the number of rules written, and the total after a full sync (else null). */
  readonly rules?: readonly {
    readonly family: IPFamily;
    readonly table: 'nat' | 'filter';
    readonly written: number;
    readonly total: number | null;
  }[];
  /** Frontends that could not be programmed, with the reason; the others are programmed. */
  readonly failed: readonly { readonly key: string; readonly error: Error }[];
}

/** Completes a report with the frontends that could not be programmed, and logs each. */
export function withFailures(
  report: Omit<ApplyReport, 'failed'>,
  failures: Iterable<readonly [key: string, error: Error]>,
  logger: Logger,
): ApplyReport {
  const failed = [...failures].map(([key, error]) => ({ key, error }));
  for (const { key, error } of failed) {
    logger.error({ frontend: key, error: messageOf(error) }, 'failed to program a frontend');
  }
  return { ...report, failed };
}

/** A difference between the kernel and the map, found by `verify`. */
export interface Drift {
  /** The kernel object, as a user would look it up: "table ip fairlead map services element …". */
  readonly object: string;
  readonly kind: 'missing' | 'unexpected' | 'different';
}

/** Compares the wanted objects with those found, by key. `nameOf` names the object; `isSame` compares values of one key. */
export function driftsBetween<K, W, F>(
  wanted: ReadonlyMap<K, W>,
  found: ReadonlyMap<K, F>,
  nameOf: (key: K, value: W | F) => string,
  isSame: (wanted: W, found: F) => boolean = () => true,
): Drift[] {
  const drifts: Drift[] = [];
  for (const [key, value] of wanted) {
    const there = found.get(key);
    if (there === undefined) drifts.push({ object: nameOf(key, value), kind: 'missing' });
    else if (!isSame(value, there)) drifts.push({ object: nameOf(key, value), kind: 'different' });
  }
  for (const [key, value] of found) {
    if (!wanted.has(key)) drifts.push({ object: nameOf(key, value), kind: 'unexpected' });
  }
  return drifts;
}

/** The options of all modes. */
export interface DataplaneOptions {
  readonly families: readonly IPFamily[];
  /** The namespace to program; default: that of this process. */
  readonly netns?: NetnsRef | undefined;
  readonly logger?: Logger | undefined;
  readonly clock?: Clock | undefined;
  /** Called when another program changed the mode's rules: call `verify`, then `sync`. */
  readonly onForeignChange?: (() => void) | undefined;
  /**
   * Whether this process owns the mode's nf_tables tables, so that other processes cannot change them, and
   * they outlive it, if the kernel supports it (6.9). Default: true.
   */
  readonly owned?: boolean | undefined;
}

/** One step of a packet's path in the kernel, for `explain`. */
export interface KernelStep {
  /** As shown by the mode's own tool: "nft: table ip fairlead, map services, element 10.96.0.10 . tcp . 80". */
  readonly object: string;
  readonly effect: string;
  /** The addresses to one of which this step may send the packet: endpoints, or the listener of a proxy. */
  readonly to?: readonly SocketAddress[];
}

/**
 * An implementation of a ServiceMap in the kernel. Calls must not overlap. After an error the caller calls
 * `sync` again, with back-off. After a report with failures, everything else works and further changes may
 * be applied; the caller calls `sync` again from time to time.
 */
export interface Dataplane {
  readonly mode: Mode;
  readonly abilities: Abilities;
  readonly families: readonly IPFamily[];
  /**
   * Reconciles the kernel with the map without interrupting traffic: adopts the state of an earlier process, and never
   * removes objects that are still wanted.
   */
  sync(map: ServiceMap): Promise<ApplyReport>;
  /** Applies a change to the map of the last `sync` or `apply`; `map` is the new map. */
  apply(change: Change, map: ServiceMap): Promise<ApplyReport>;
  /** Reads the kernel's state and compares it with the last map; empty if they are equal. */
  verify(): Promise<readonly Drift[]>;
  /** Returns the kernel objects that this packet to a frontend passes, in order. */
  locate(frontend: Frontend, packet: Packet): readonly KernelStep[];
  /**
   * Closes descriptors and listeners of this process; the kernel's state stays and traffic continues. After a switch to
   * another mode this may take a second, until packets in flight have arrived.
   */
  close(): Promise<void>;
  /**
   * Removes the mode's state from this node. `succeeded`: another mode is already programmed; state that
   * modes share (the sysctl route_localnet, routes to ::1) is kept for it.
   */
  remove(options?: { readonly succeeded: boolean }): Promise<void>;
}
