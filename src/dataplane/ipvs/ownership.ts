import type { ServerId, VirtualServer } from '../../kernel/ipvs/codec.ts';
import type { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { MarkScheme } from './marks.ts';
import { serverKey, serverOrder } from './server-table.ts';

/** Distinguishes this mode's virtual servers from other programs'. */
export interface Owner {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly scheme: MarkScheme;
  /** Known servers of other programs on addresses of the mode's interface, by `serverKey`. */
  readonly foreign: ReadonlySet<string>;
}

/**
 * Returns a function that recognizes Fairlead's virtual servers: those with its marks, and those on
 * addresses of its interface. `bound`: the addresses of the interface in the kernel.
 */
export function ownership(
  { families, scheme, foreign }: Omit<Owner, 'netns'>,
  bound: ReadonlySet<string>,
): (id: ServerId) => boolean {
  return (id) =>
    families.includes(id.family) &&
    ('mark' in id ? scheme.isOurs(id.mark) : bound.has(id.address)) &&
    !foreign.has(serverKey(id));
}

/** Lists this mode's servers in the order of their deletion. `shared`: other programs have servers too. */
export function ownServers(
  ipvs: IpvsConnection,
  owner: Owner,
  bound: ReadonlySet<string>,
): { readonly own: VirtualServer[]; readonly shared: boolean } {
  const isOwn = ownership(owner, bound);
  const all = ipvs.servers();
  const own = all.filter(({ id }) => isOwn(id)).sort((a, b) => serverOrder(b.id, a.id));
  return { own, shared: own.length < all.length };
}
