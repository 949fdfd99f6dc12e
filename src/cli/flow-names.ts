import type { Client } from '../kube/client.ts';
import { startInformer } from '../kube/informer.ts';
import { RESOURCES } from '../kube/types.ts';
import { systemClock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';

/** Returns the current owner of an address: "namespace/name" of a pod, "node/NAME", "outside", or null. */
export interface FlowNames {
  of(ip: string): string | null;
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
  nodes.handle({
    onAdd: (node) => {
      for (const { address } of node.status?.addresses ?? []) {
        if (address) names.set(address, `node/${node.metadata?.name}`);
      }
    },
  });
  // Names of deleted pods are kept: their last connections end later.
  const put: NonNullable<Parameters<typeof pods.handle>[0]['onAdd']> = (pod) => {
    if (pod.spec?.hostNetwork) return;
    for (const { ip } of pod.status?.podIPs ?? []) {
      if (ip) names.set(ip, `${pod.metadata?.namespace}/${pod.metadata?.name}`);
    }
  };
  pods.handle({ onAdd: put, onUpdate: put });
  await Promise.all([pods.synced, nodes.synced]);
  return { of: (ip) => names.get(ip) ?? null };
}
