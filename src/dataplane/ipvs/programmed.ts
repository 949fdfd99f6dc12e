import type { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Tables } from '../../nft/tables.ts';
import type { FrontendKey, NodeView } from '../../service/model.ts';
import type { FrontendPlan } from './frontend-plan.ts';
import type { Layout } from './layout.ts';
import type { MarkScheme, NumberTable } from './marks.ts';
import type { IpvsOptions } from './options.ts';
import type { SchedulerProbe } from './scheduler-probe.ts';
import type { ServerTable } from './server-table.ts';

/** The kernel objects that are programmed. */
export interface Kernel {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly ipvs: IpvsConnection;
  readonly tables: Tables;
  readonly probe: SchedulerProbe;
  readonly clock: Clock;
  readonly options: IpvsOptions;
}

/** The programmed state, equal to the kernel's. */
export interface Programmed {
  readonly node: NodeView;
  readonly device: number;
  readonly servers: ServerTable;
  readonly scheme: MarkScheme;
  readonly marks: NumberTable;
  readonly aliases: NumberTable;
  readonly layouts: ReadonlyMap<IPFamily, Layout>;
  readonly plans: Map<FrontendKey, FrontendPlan>;
  /** Addresses of the mode's interface. */
  readonly bound: Set<string>;
  /** Addresses of the node's other devices at the last check. */
  others: ReadonlySet<string>;
  /** The number of frontends and cluster IPs that use each address. */
  readonly uses: Map<string, number>;
  readonly failed: Map<FrontendKey, Error>;
  /**
   * Virtual servers of other programs, by `serverKey`: never changed, even if a Service needs the same one.
   */
  readonly foreign: Set<string>;
  /** Whether all existing servers have been read. */
  isListed: boolean;
  /** Whether the kernel rejected a command, so that its state is unknown. */
  isStale: boolean;
}
