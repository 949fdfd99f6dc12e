import type { IpvsTimeouts } from '../../kernel/ipvs/codec.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/log.ts';
import type { Dataplane } from '../dataplane.ts';

export interface IpvsOptions {
  readonly families: readonly IPFamily[];
  /** Where to program; default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** Called when another program has changed our tables or addresses: call `verify`, then `sync`. */
  readonly onForeignChange?: () => void;
  /** The tables are this process's own, and survive it, where the kernel can (6.9). Default: true. */
  readonly owned?: boolean;
  /** Scheduler of Services that name none; default: the node view's. */
  readonly scheduler?: string;
  /** Seconds after which idle connections are forgotten; 0 and what is left out stay as the system has them. */
  readonly timeouts?: Partial<IpvsTimeouts>;
  /** Endpoints that are gone keep their open connections for at most this many milliseconds; default an hour. */
  readonly drainMs?: number;
}

export interface IpvsDataplane extends Dataplane {
  /** Throws FairleadError (no-scheduler) for a scheduler that does not exist, or that the kernel lacks. */
  requireScheduler(name: string): Promise<void>;
  /** Ends TCP and SCTP connections to endpoints that are gone for good, instead of waiting for them to close. */
  endConnections(endpoints: readonly { readonly ip: string; readonly port: number }[]): Promise<void>;
}
