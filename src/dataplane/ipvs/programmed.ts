import type { ServerId } from '../../kernel/ipvs/codec.ts';
import type { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { cidrContains, type IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { FairleadError } from '../../lib/errors.ts';
import type { Tables } from '../../nft/tables.ts';
import type { FrontendKey, NodeView } from '../../service/model.ts';
import { ALIAS, type FrontendPlan } from './frontend-plan.ts';
import type { Layout } from './layout.ts';
import type { MarkScheme, NumberTable } from './marks.ts';
import type { IpvsOptions } from './options.ts';
import type { SchedulerProbe } from './scheduler-probe.ts';
import type { Commands, ServerTable } from './server-table.ts';

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

/**
 * Removes a server without a frontend. Its connections may drain if its address can stay on this node: if another port
 * of it is in use, or if it is a cluster IP. A load balancer's address may already be in use on another host.
 */
export function drop(state: Programmed, id: ServerId, drains: boolean, now: number, remove: Commands): void {
  const stays =
    'mark' in id ||
    (!state.others.has(id.address) &&
      (state.uses.has(id.address) || state.node.serviceCidrs.some((cidr) => cidrContains(cidr, id.address))));
  const gone = state.servers.drop(id, drains && stays, now, remove);
  if (gone) freeNumber(state, id);
}

/** Returns the number of a server without a frontend address. */
export function numbersOf(state: Programmed, id: ServerId): { table: NumberTable; number: number } | null {
  if ('mark' in id) return { table: state.marks, number: id.mark };
  return id.address === ALIAS[id.family] ? { table: state.aliases, number: id.port } : null;
}

/** Frees the number of a deleted server. */
export function freeNumber(state: Programmed, id: ServerId): void {
  const numbers = numbersOf(state, id);
  numbers?.table.free(numbers.number);
}

/** Marks always belong to this mode; on addresses of its interface other programs may have servers too. */
export function isKnown({ servers }: Programmed, id: ServerId): boolean {
  return 'mark' in id || servers.has(id);
}

/** Returns the layout of a family's table. */
export function layoutOf(state: Programmed, family: IPFamily): Layout {
  const layout = state.layouts.get(family);
  // Invariant: callers pass only families of frontends that `state` was created with.
  if (!layout) throw new Error(`IPVS state has no layout for ${family}`);
  return layout;
}

/** Counts a use of an address, or one less. */
export function use(state: Programmed, ip: string, by: number): void {
  const uses = (state.uses.get(ip) ?? 0) + by;
  if (uses > 0) state.uses.set(ip, uses);
  else state.uses.delete(ip);
}

/** Returns true if the mode handles the family of an address. */
export const isOfFamilies = ({ families }: Kernel, ip: string): boolean =>
  families.includes(ip.includes(':') ? 'ipv6' : 'ipv4');

/** An error means that the kernel's state has changed; an object that is already gone needs no deletion. */
export function reporter(state: Programmed): (owner: FrontendKey | null, error: FairleadError) => void {
  return (owner, error) => {
    if (error.code === 'ENOENT' && owner === null) return;
    state.isStale = true;
    state.failed.set(owner ?? error.object ?? 'ipvs', error);
  };
}
