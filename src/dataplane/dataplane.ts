import type { IPFamily } from '../lib/address.ts';
import type { Change, Frontend, Packet, ServiceMap } from '../service/model.ts';
import type { OnFlowEvent } from './flow-event.ts';

export type Mode = 'userspace' | 'iptables' | 'ipvs' | 'nftables' | 'ebpf';

/** What an apply did; for metrics and for the log. Durations in milliseconds. */
export interface ApplyReport {
  readonly encodeMs: number;
  readonly kernelMs: number;
  /** Messages, elements or lines written: the mode's own unit of work. */
  readonly operations: number;
  /** Frontends that could not be programmed, with the reason; the rest is programmed. */
  readonly failed: readonly { readonly key: string; readonly error: Error }[];
}

/** A difference between the kernel and the map, found by `verify`. */
export interface Drift {
  /** The kernel object, as a person would look it up: "table ip fairlead map svc element …". */
  readonly object: string;
  readonly kind: 'missing' | 'unexpected' | 'different';
}

/** An address and port in this node's or a pod's network. */
export interface SocketAddress {
  readonly ip: string;
  readonly port: number;
}

/** One step of a packet's way in the kernel, for `explain`: the object that takes it and what it does. */
export interface KernelStep {
  /** As the mode's own tool names it: "nft: table ip fairlead, map svc, element 10.96.0.10 . tcp . 80". */
  readonly object: string;
  readonly effect: string;
}

/**
 * One way of carrying out a ServiceMap in the kernel. Calls never overlap: the caller waits for one before the next.
 * After an error the caller calls `sync` again, with back-off. After an incomplete report what is not refused works, and
 * further changes may be applied; here, too, the caller calls `sync` again from time to time.
 */
export interface Dataplane {
  readonly mode: Mode;
  readonly families: readonly IPFamily[];
  /**
   * Makes the kernel equal to the map, whatever is there now, without a gap for traffic: adopts what an earlier
   * run left, drops nothing that is still wanted.
   */
  sync(map: ServiceMap): Promise<ApplyReport>;
  /** Applies a change to the map of the last `sync` or `apply`; `map` is the map after it. */
  apply(change: Change, map: ServiceMap): Promise<ApplyReport>;
  /** Reads the kernel back and compares it with the last map; empty when equal. */
  verify(): Promise<readonly Drift[]>;
  /** The kernel objects that carry out a frontend for this packet, in the order the packet meets them. */
  locate(frontend: Frontend, packet: Packet): readonly KernelStep[];
  /**
   * Calls back with what the mode itself sees of flows through Services, as it happens; what connection tracking
   * shows of them is not among it. Absent where that is all there is.
   */
  watchFlows?(onEvent: OnFlowEvent): { close(): void };
  /**
   * True for an address where a UDP listener of the mode itself takes what the rules send there, until it is closed:
   * flows that connection tracking leads to it are no stale ones. Absent where datagrams go to endpoints only.
   */
  readonly listening?: (at: SocketAddress) => boolean;
  /**
   * Releases handles and listeners of this process; the kernel's state stays and traffic flows. After a removal in
   * favour of another mode this may take a second, until what was on its way has arrived.
   */
  close(): Promise<void>;
  /**
   * Removes everything this mode ever wrote on this node, and nothing else. `succeeded`: another mode is complete
   * already; what modes share (the sysctl route_localnet, routes to ::1) is the successor's and stays.
   */
  remove(options?: { readonly succeeded: boolean }): Promise<void>;
}
