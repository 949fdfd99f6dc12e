import { sameFrontend, sameHealthCheck, sameNodeView } from './equality.ts';
import type { Change, FrontendChange, ServiceMap } from './model.ts';

/**
 * Returns the changes from one map to another. Equal parts count as unchanged, whether or not they are the
 * same object. `before` null: from an empty map. A map of a ServiceTable changes with the table's next
 * commit; take a `snapshot` to compare it with a later one.
 */
export function diff(before: ServiceMap | null, after: ServiceMap): Change {
  const frontends: FrontendChange[] = [];
  for (const change of changes(before?.frontends, after.frontends, sameFrontend)) frontends.push(change);
  const clusterIPs = setChange(before?.clusterIPs.keys() ?? [], after.clusterIPs.keys());
  return {
    node:
      before && sameNodeView(before.node, after.node)
        ? null
        : { before: before?.node ?? null, after: after.node },
    frontends: frontends.sort(compareFrontendChanges),
    clusterIPs,
    hairpinAddresses: setChange(before?.hairpinAddresses ?? [], after.hairpinAddresses),
    healthChecks: [...changes(before?.healthChecks, after.healthChecks, sameHealthCheck)],
  };
}

/** Returns true if applying the change would do nothing. */
export function isEmptyChange(change: Change): boolean {
  const { node, frontends, clusterIPs, hairpinAddresses, healthChecks } = change;
  return (
    node === null &&
    frontends.length + healthChecks.length === 0 &&
    clusterIPs.added.length + clusterIPs.removed.length === 0 &&
    hairpinAddresses.added.length + hairpinAddresses.removed.length === 0
  );
}

/**
 * Returns a copy of a map that stays valid after further commits of its table. The cost is proportional to
 * the size of the map.
 */
export function snapshot(map: ServiceMap): ServiceMap {
  return {
    ...map,
    frontends: new Map(map.frontends),
    healthChecks: new Map(map.healthChecks),
    clusterIPs: new Map(map.clusterIPs),
    hairpinAddresses: new Set(map.hairpinAddresses),
  };
}

/** Orders removals last: additions and changes take effect before anything is removed. */
export function compareFrontendChanges(a: FrontendChange, b: FrontendChange): number {
  return Number(a.after === null) - Number(b.after === null);
}

function* changes<V>(
  before: ReadonlyMap<string, V> | undefined,
  after: ReadonlyMap<string, V>,
  same: (a: V, b: V) => boolean,
): Generator<{ key: string; before: V | null; after: V | null }> {
  for (const [key, value] of after) {
    const old = before?.get(key);
    if (old === undefined) yield { key, before: null, after: value };
    else if (!same(old, value)) yield { key, before: old, after: value };
  }
  for (const [key, value] of before ?? []) if (!after.has(key)) yield { key, before: value, after: null };
}

function setChange(before: Iterable<string>, after: Iterable<string>) {
  const old = new Set(before);
  const added: string[] = [];
  for (const value of after) if (!old.delete(value)) added.push(value);
  return { added, removed: [...old] };
}
