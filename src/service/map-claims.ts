import { createConflictResolution, type Rank } from './conflict-resolution.ts';
import { compareFrontendChanges } from './diff.ts';
import { sameHealthCheck } from './equality.ts';
import { createHairpinUses } from './hairpin-uses.ts';
import type { Change, Frontend, HealthCheck, ServiceMap } from './model.ts';
import { type CompiledService, hairpinAddressesOf } from './service-compiler.ts';

/** The contents of a ServiceMap, from what its Services claim: of two claims on one key, the older Service's is held. */
export interface MapClaims {
  /** Replaces what a Service claims. */
  replace(owner: string, before: CompiledService | null, after: CompiledService | null): void;
  /** Returns the changes since the previous call. */
  takeChanges(): Pick<Change, 'frontends' | 'clusterIPs' | 'hairpinAddresses' | 'healthChecks'>;
  /** Current views. */
  readonly held: Pick<ServiceMap, 'frontends' | 'healthChecks' | 'clusterIPs' | 'hairpinAddresses'>;
  readonly frontends: ReturnType<typeof createConflictResolution<Frontend>>;
}

/** `createdAt`: returns the age of a Service as it is compiled. */
export function createMapClaims(createdAt: (owner: string) => number | undefined): MapClaims {
  const rankOf = (owner: string): Rank => ({
    createdAt: createdAt(owner) ?? Number.POSITIVE_INFINITY,
    owner,
  });
  const frontends = createConflictResolution<Frontend>(({ owner }) =>
    rankOf(`${owner.namespace}/${owner.name}`),
  );
  const clusterIPs = createConflictResolution<string>(rankOf);
  const healthChecks = new Map<string, HealthCheck>();
  const hairpins = createHairpinUses();
  let changedChecks: Change['healthChecks'][number][] = [];

  const replaceHealthCheck = (key: string, before: HealthCheck | null, after: HealthCheck | null) => {
    if (before === after || (before && after && sameHealthCheck(before, after))) return;
    if (after) healthChecks.set(key, after);
    else healthChecks.delete(key);
    changedChecks.push({ key, before, after });
  };

  return {
    replace(owner, before, after) {
      const rank = rankOf(owner);
      const sameRank = before !== null && after !== null && before.createdAt === after.createdAt;

      const gone = new Map(before?.frontends.map((frontend) => [frontend.key, frontend]));
      for (const frontend of after?.frontends ?? []) {
        if (gone.get(frontend.key) !== frontend || !sameRank) frontends.set(frontend.key, rank, frontend);
        gone.delete(frontend.key);
      }
      for (const frontendKey of gone.keys()) frontends.delete(frontendKey, owner);

      const goneAddresses = new Set(before?.clusterIPs);
      for (const address of after?.clusterIPs ?? []) {
        if (!goneAddresses.delete(address) || !sameRank) clusterIPs.set(address, rank, owner);
      }
      for (const address of goneAddresses) clusterIPs.delete(address, owner);

      const wasHairpin = hairpinAddressesOf(before);
      for (const address of hairpinAddressesOf(after)) {
        if (!wasHairpin.delete(address)) hairpins.count(address, 1);
      }
      for (const address of wasHairpin) hairpins.count(address, -1);

      replaceHealthCheck(owner, before?.healthCheck ?? null, after?.healthCheck ?? null);
    },
    takeChanges() {
      const changes = {
        frontends: frontends.takeChanges().sort(compareFrontendChanges),
        clusterIPs: addressChanges(clusterIPs.takeChanges()),
        hairpinAddresses: hairpins.takeChanges(),
        healthChecks: changedChecks,
      };
      changedChecks = [];
      return changes;
    },
    get held() {
      return {
        frontends: frontends.held,
        healthChecks,
        clusterIPs: clusterIPs.held,
        hairpinAddresses: hairpins.addresses,
      };
    },
    frontends,
  };
}

function addressChanges(changes: readonly { key: string; before: unknown; after: unknown }[]) {
  return {
    added: changes.filter(({ before }) => before === null).map(({ key }) => key),
    removed: changes.filter(({ after }) => after === null).map(({ key }) => key),
  };
}
