import { existsSync } from 'node:fs';
import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import { familyOf } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';

export interface OwnNodeOptions {
  readonly nodes: Informer<Node>;
  readonly name: string;
  /** The configured primary address; null: the Node object's. */
  readonly address: string | null;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** How long a proxy waits for its Node object before it carries Services without. */
const PATIENCE_MS = 3000;

/**
 * This machine's Node object for the proxy: as it is, or, where it is missing or has no address after some seconds, a
 * stand-in of the configured name, so that Services work from what is known. Says in the log what is missing. Rejects
 * when the signal aborts.
 */
export async function ownNodeOrStandIn(options: OwnNodeOptions): Promise<Node> {
  const { nodes, name, address, clock, logger } = options;
  await nodes.synced;
  const found = nodeWhen(options, (node) => nodeProblem(node, name, address) === null);
  const patience = Promise.withResolvers<null>();
  const cancel = clock.after(PATIENCE_MS, () => patience.resolve(null));
  const node = await Promise.race([found, patience.promise]);
  cancel();
  if (node) return withAddress(node, address);
  found.catch(() => {});
  const known = nodes.get(name);
  logger.warn(
    { node: name },
    `${nodeProblem(known, name, address)}; Services are carried without what depends on it, and /healthz answers 503`,
  );
  return withAddress(known ?? { metadata: { name } }, address);
}

/** Why a Node object does not tell all that a proxy needs, or null. */
export function nodeProblem(node: Node | undefined, name: string, address: string | null): string | null {
  if (!node) {
    return `there is no Node ${name}: set nodeName, --hostname-override or NODE_NAME to this machine's Node`;
  }
  const isKnown = address !== null || addresses(node, 'InternalIP', 'ExternalIP').length > 0;
  return isKnown ? null : `Node ${name} has neither an InternalIP nor an ExternalIP`;
}

/** The Node with `address` before its own; null: as it is. */
export function withAddress(node: Node, address: string | null): Node {
  if (address === null) return node;
  const own = (node.status?.addresses ?? []).filter((one) => one.address !== address);
  return {
    ...node,
    status: { ...node.status, addresses: [{ type: 'InternalIP', address }, ...own] },
  } as Node;
}

/** The families of the node's addresses; without any, those of the kernel. */
export function familiesOf(node: Node): IPFamily[] {
  const families = new Set(addresses(node, 'InternalIP', 'ExternalIP').flatMap((one) => familyOf(one) ?? []));
  if (families.size > 0) return [...families];
  return existsSync('/proc/sys/net/ipv6') ? ['ipv4', 'ipv6'] : ['ipv4'];
}

/** Resolves with the node's object as soon as it satisfies `wanted`. */
export function nodeWhen(
  { nodes, name, signal }: Pick<OwnNodeOptions, 'nodes' | 'name' | 'signal'>,
  wanted: (node: Node) => boolean,
): Promise<Node> {
  return new Promise((resolve, reject) => {
    const look = (node: Node) => {
      if (node.metadata?.name !== name || !wanted(node)) return;
      stop();
      resolve(node);
    };
    let stop = () => {};
    stop = nodes.handle({ onAdd: look, onUpdate: look });
    signal.addEventListener('abort', () => {
      stop();
      reject(signal.reason);
    });
  });
}

function addresses(node: Node, ...types: string[]): string[] {
  return (node.status?.addresses ?? []).filter((one) => types.includes(one.type)).map((one) => one.address);
}
