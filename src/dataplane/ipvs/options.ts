import type { IpvsTimeouts } from '../../kernel/ipvs/codec.ts';
import type { Abilities, OwnConnections } from '../abilities.ts';
import type { Dataplane, DataplaneOptions } from '../dataplane.ts';

export interface IpvsOptions extends DataplaneOptions {
  /** The default scheduler; default: the node view's. */
  readonly scheduler?: string;
  /** Seconds after which idle connections expire; 0 or absent: the kernel's value. */
  readonly timeouts?: Partial<IpvsTimeouts>;
  /** How long removed endpoints keep their open connections, in milliseconds; default: an hour. */
  readonly drainMs?: number;
}

export interface IpvsDataplane extends Dataplane {
  /** Throws FairleadError (no-scheduler) for a scheduler that does not exist, or that the kernel does not support. */
  requireScheduler(name: string): Promise<void>;
  /** TCP and SCTP connections to removed endpoints, which otherwise stay until they close. */
  readonly abilities: Abilities & { readonly connections: OwnConnections };
}
