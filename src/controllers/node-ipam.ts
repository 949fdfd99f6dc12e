import { type Node, RESOURCES } from '../kube/types.ts';
import { type Cidr, cidrContains, parseCidr, subnetAt } from '../lib/address.ts';
import { type ControllerContext, controllerQueue, recorderFor } from './context.ts';

const MASK_SIZES = { ipv4: 24, ipv6: 64 } as const;

/** One of the pods' networks, and the prefix length of each node's subnet. */
export interface NodePool {
  readonly cidr: Cidr;
  readonly prefix: number;
}

/**
 * Allocates podCIDRs for a node, one from each pool, that no other node has; returns null if a pool is exhausted. The
 * search starts at `hint`, after the last allocation, so that a released subnet is not reused immediately. Pure.
 */
export function allocatePodCidrs(
  pools: readonly NodePool[],
  nodes: Iterable<Node>,
  hint: number,
): { podCidrs: string[]; index: number } | null {
  const taken = [...nodes].flatMap(({ spec }) =>
    (spec?.podCIDRs ?? (spec?.podCIDR ? [spec.podCIDR] : [])).flatMap((text) => parseCidr(text) ?? []),
  );
  let first: number | null = null;
  const podCidrs: string[] = [];
  for (const { cidr, prefix } of pools) {
    const count = 2 ** Math.min(30, Math.max(0, prefix - cidr.prefix));
    let found: string | null = null;
    for (let i = 0; i < count && found === null; i++) {
      const index = (hint + i) % count;
      const part = subnetAt(cidr, prefix, index);
      const used = taken.some((other) => cidrContains(other, part.bytes) || cidrContains(part, other.bytes));
      if (used) continue;
      found = part.text;
      first ??= index;
    }
    if (found === null) return null;
    podCidrs.push(found);
  }
  return { podCidrs, index: first ?? 0 };
}

/** Allocates each node's subnets of the pods' networks. */
export function startNodeIpam(context: ControllerContext): void {
  const { nodes } = context.caches;
  const pools = context.options.clusterCidrs.flatMap((text): NodePool[] => {
    const cidr = parseCidr(text);
    if (!cidr) return [];
    const wanted = context.options.nodeMaskSizes?.[cidr.family] ?? MASK_SIZES[cidr.family];
    return [{ cidr, prefix: Math.max(wanted, cidr.prefix) }];
  });
  if (pools.length === 0) return;
  const events = recorderFor(context, 'cidrAllocator');
  let next = 0;
  // One at a time: each allocation must see the previous one.
  const queue = controllerQueue(
    context,
    'node-ipam',
    async (name) => {
      const node = nodes.get(undefined, name);
      if (!node || node.spec?.podCIDR || node.metadata?.deletionTimestamp !== undefined) return;
      const found = allocatePodCidrs(pools, nodes.informer.list(), next);
      if (!found) {
        const message = `Node ${name} status is now: CIDRNotAvailable`;
        events.event(node, 'Warning', 'CIDRNotAvailable', message, RESOURCES.nodes);
        queue.addAfter(name, 30_000);
        return;
      }
      next = found.index + 1;
      const { uid, resourceVersion } = node.metadata ?? {};
      await nodes.patch(node, 'merge', {
        metadata: { uid, resourceVersion },
        spec: { podCIDR: found.podCidrs[0], podCIDRs: found.podCidrs },
      });
    },
    1,
  );
  nodes.informer.handle({
    onAdd: (node) => queue.add(node.metadata?.name ?? ''),
    onUpdate: (node) => queue.add(node.metadata?.name ?? ''),
    onDelete() {
      // Retries nodes that found no free subnet.
      for (const node of nodes.informer.list()) if (!node.spec?.podCIDR) queue.add(node.metadata?.name ?? '');
    },
  });
}
