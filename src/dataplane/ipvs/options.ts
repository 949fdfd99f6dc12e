import type { IpvsTimeouts } from '../../kernel/ipvs/codec.ts';
import type { Dataplane, DataplaneOptions } from '../dataplane.ts';

export interface IpvsOptions extends DataplaneOptions {
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
