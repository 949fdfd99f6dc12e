import { type Amounts, nano } from './quota/amounts.ts';

/**
 * Reports whether a resource is not one of Kubernetes' own, such as those of device plugins: it is counted in whole
 * numbers, and its request equals its limit.
 */
export function isExtendedResource(name: string): boolean {
  return name.includes('/') && !name.includes('kubernetes.io/') && !name.startsWith('requests.');
}

/** Returns only the extended resources. */
export function extendedResources(amounts: Amounts | undefined): Amounts {
  return Object.fromEntries(Object.entries(amounts ?? {}).filter(([name]) => isExtendedResource(name)));
}

/**
 * Returns the changes to a node's allocatable resources that make all of its extended capacity available to pods, and
 * nothing else; null removes a resource.
 */
export function allocatableChanges(status: {
  readonly capacity?: Amounts;
  readonly allocatable?: Amounts;
}): Record<string, string | null> {
  const capacity = extendedResources(status.capacity);
  const allocatable = extendedResources(status.allocatable);
  const changes: Record<string, string | null> = {};
  for (const [name, amount] of Object.entries(capacity)) {
    const known = allocatable[name];
    if (known === undefined || nano(known) !== nano(amount)) changes[name] = amount;
  }
  for (const name of Object.keys(allocatable)) if (capacity[name] === undefined) changes[name] = null;
  return changes;
}
