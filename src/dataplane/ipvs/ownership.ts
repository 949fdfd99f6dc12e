import type { ServerId } from '../../kernel/ipvs/codec.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { MarkScheme } from './marks.ts';

/**
 * Which virtual servers are Fairlead's: those with its marks, and those on addresses of its interface.
 * `bound`: the addresses of the interface in the kernel.
 */
export function ownership(
  scheme: MarkScheme,
  bound: ReadonlySet<string>,
  families: readonly IPFamily[],
): (id: ServerId) => boolean {
  return (id) =>
    families.includes(id.family) && ('mark' in id ? scheme.isOurs(id.mark) : bound.has(id.address));
}
