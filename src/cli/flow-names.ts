import type { Client } from '../kube/client.ts';
import { startInformer } from '../kube/informer.ts';
import { RESOURCES } from '../kube/types.ts';
import { systemClock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';

/** The owners of addresses. */
export interface FlowNames {
  /** Returns the current owner of an address: "namespace/name" of a pod, "node/NAME", "outside", or null. */
  of(ip: string): string | null;
  /** Returns the node whose pod has an address, or the node itself; null: another address. */
  nodeOf(ip: string): string | null;
}

/** Watches pods and nodes until the signal aborts; resolves when the existing ones are known. */
export async function followNames(
  client: Client,
  outsideAddresses: readonly string[],
  logger: Logger,
  signal: AbortSignal,
): Promise<FlowNames> {
  const shared = { client, clock: systemClock, random: Math.random, logger, signal };
  const pods = startInformer({ ...shared, resource: RESOURCES.pods });
  const nodes = startInformer({ ...shared, resource: RESOURCES.nodes });
  const names = new Map<string, string>(outsideAddresses.map((ip) => [ip, 'outside']));
  const homes = new Map<string, string>();
  nodes.handle({
    onAdd: (node) => {
      const name = node.metadata?.name ?? '';
      for (const { address } of node.status?.addresses ?? []) {
        if (!address) continue;
        names.set(address, `node/${name}`);
        homes.set(address, name);
      }
    },
  });
  // Names of deleted pods are kept: their last connections end later.
  const put: NonNullable<Parameters<typeof pods.handle>[0]['onAdd']> = (pod) => {
    if (pod.spec?.hostNetwork) return;
    for (const { ip } of pod.status?.podIPs ?? []) {
      if (!ip) continue;
      names.set(ip, `${pod.metadata?.namespace}/${pod.metadata?.name}`);
      if (pod.spec?.nodeName) homes.set(ip, pod.spec.nodeName);
    }
  };
  pods.handle({ onAdd: put, onUpdate: put });
  await Promise.all([pods.synced, nodes.synced]);
  return { of: (ip) => names.get(ip) ?? null, nodeOf: (ip) => homes.get(ip) ?? null };
}
