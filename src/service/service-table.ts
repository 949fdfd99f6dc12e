import { createConflictResolution } from './conflict-resolution.ts';
import { compareFrontendChanges } from './diff.ts';
import type { EndpointKey } from './endpoint-key.ts';
import { sameForRoutes, sameHealthCheck, sameNodeView } from './equality.ts';
import { asRecord } from './finding-list.ts';
import { createFindingTable } from './finding-table.ts';
import { createHairpinUses } from './hairpin-uses.ts';
import type { Change, Finding, Frontend, HealthCheck, NodeView, ServiceMap } from './model.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import type { ParsedService } from './parsed-service.ts';
import { type CompiledService, compileService, hairpinAddressesOf } from './service-compiler.ts';
import { readService } from './service-reader.ts';
import { createInterner, type ParsedSlice, readSlice } from './slice-reader.ts';

export interface Commit {
  /** Its containers belong to the table: valid until the next commit. */
  readonly map: ServiceMap;
  /** The difference from the map of the previous commit; from an empty one at first. */
  readonly change: Change;
  /** New and resolved findings, for events. */
  readonly findings: { readonly added: readonly Finding[]; readonly removed: readonly Finding[] };
}

/**
 * A ServiceMap that follows the API objects. Setters only mark objects; `commit` compiles the marked ones,
 * so its cost depends on the change and not on the size of the cluster. The table does not store the
 * objects, only the parts that forwarding needs.
 */
export interface ServiceTable {
  setService(service: ServiceObject): void;
  deleteService(namespace: string, name: string): void;
  setSlice(slice: EndpointSliceObject): void;
  deleteSlice(namespace: string, name: string): void;
  setNode(node: NodeView): void;
  /**
   * Sets the complete list of endpoints to eject, by `endpointKey`; if a pool may not lose that many, those
   * listed first are ejected. Services that opt out of failover keep theirs.
   */
  setEjected(endpoints: ReadonlySet<EndpointKey>): void;
  /** True if a commit may change something. */
  readonly dirty: boolean;
  commit(): Commit;
}

interface Entry {
  service: ParsedService | null;
  serviceFindings: readonly Finding[];
  /** Ordered by name. */
  slices: readonly ParsedSlice[];
  sliceFindings: ReadonlyMap<string, readonly Finding[]> | null;
  compiled: CompiledService | null;
}

const NO_FINDINGS: readonly Finding[] = [];
const NONE: ReadonlySet<EndpointKey> = new Set();

/** Creates an empty table for one node. Pure: no clock, no I/O, no randomness. */
export function createServiceTable(initialNode: NodeView): ServiceTable {
  let node = initialNode;
  let committedNode: NodeView | null = null;
  let ejected: ReadonlySet<EndpointKey> = NONE;
  const interner = createInterner();
  const entries = new Map<string, Entry>();
  /** "namespace/slice" → "namespace/service". */
  const owners = new Map<string, string>();
  const dirty = new Set<string>();

  const rankOf = (owner: string) => {
    const createdAt = entries.get(owner)?.compiled?.createdAt ?? Number.POSITIVE_INFINITY;
    return { createdAt, owner };
  };
  const frontends = createConflictResolution<Frontend>(({ owner }) =>
    rankOf(`${owner.namespace}/${owner.name}`),
  );
  const clusterIPs = createConflictResolution<string>(rankOf);
  const healthChecks = new Map<string, HealthCheck>();
  const hairpins = createHairpinUses();
  const findings = createFindingTable();

  const entryOf = (key: string): Entry => {
    const known = entries.get(key);
    if (known) return known;
    const entry = {
      service: null,
      serviceFindings: NO_FINDINGS,
      slices: [],
      sliceFindings: null,
      compiled: null,
    };
    entries.set(key, entry);
    return entry;
  };

  const dropSlice = (sliceKey: string, name: string) => {
    const owner = owners.get(sliceKey);
    const entry = owner === undefined ? undefined : entries.get(owner);
    if (owner === undefined || !entry) return;
    owners.delete(sliceKey);
    entry.slices = entry.slices.filter((slice) => slice.name !== name);
    entry.sliceFindings = withFindings(entry.sliceFindings, name, NO_FINDINGS);
    dirty.add(owner);
  };

  /** Recompiles one Service and requests its frontends and addresses; returns its findings. */
  const refresh = (key: string, changes: ChangeParts) => {
    const entry = entries.get(key);
    if (!entry) return;
    const before = entry.compiled;
    const context = { node, ejected };
    const after = entry.service && compileService(entry.service, entry.slices, context, before);
    entry.compiled = after;
    const rank = { createdAt: after?.createdAt ?? Number.POSITIVE_INFINITY, owner: key };
    const sameRank = before !== null && after !== null && before.createdAt === after.createdAt;

    const gone = new Map(before?.frontends.map((frontend) => [frontend.key, frontend]));
    for (const frontend of after?.frontends ?? []) {
      if (gone.get(frontend.key) !== frontend || !sameRank) frontends.set(frontend.key, rank, frontend);
      gone.delete(frontend.key);
    }
    for (const frontendKey of gone.keys()) frontends.delete(frontendKey, key);

    const goneAddresses = new Set(before?.clusterIPs);
    for (const address of after?.clusterIPs ?? []) {
      if (!goneAddresses.delete(address) || !sameRank) clusterIPs.set(address, rank, key);
    }
    for (const address of goneAddresses) clusterIPs.delete(address, key);

    const wasHairpin = hairpinAddressesOf(before);
    for (const address of hairpinAddressesOf(after)) {
      if (!wasHairpin.delete(address)) hairpins.count(address, 1);
    }
    for (const address of wasHairpin) hairpins.count(address, -1);

    setHealthCheck(key, before?.healthCheck ?? null, after?.healthCheck ?? null, changes);

    const found = [entry.serviceFindings, ...(entry.sliceFindings?.values() ?? [])].flat();
    findings.set(key, found);
    if (entry.service === null && entry.slices.length === 0 && found.length === 0) entries.delete(key);
  };

  const setHealthCheck = (
    key: string,
    before: HealthCheck | null,
    after: HealthCheck | null,
    changes: ChangeParts,
  ) => {
    if (before === after || (before && after && sameHealthCheck(before, after))) return;
    if (after) healthChecks.set(key, after);
    else healthChecks.delete(key);
    changes.healthChecks.push({ key, before, after });
  };

  return {
    setService(object) {
      const { service, findings: found } = readService(object);
      const key = keyOf(object);
      const entry = entryOf(key);
      entry.service = service;
      entry.serviceFindings = found;
      dirty.add(key);
    },
    deleteService(namespace, name) {
      const entry = entries.get(`${namespace}/${name}`);
      if (!entry) return;
      entry.service = null;
      entry.serviceFindings = NO_FINDINGS;
      dirty.add(`${namespace}/${name}`);
    },
    setSlice(object) {
      const { namespace, name } = nameOf(object);
      const sliceKey = `${namespace}/${name}`;
      const { service, slice, findings: found } = readSlice(object, interner);
      const owner = service === null ? null : `${namespace}/${service}`;
      if (owners.get(sliceKey) !== owner) dropSlice(sliceKey, name);
      if (owner === null) return;
      owners.set(sliceKey, owner);
      const entry = entryOf(owner);
      const others = entry.slices.filter((other) => other.name !== name);
      entry.slices = slice ? [...others, slice].sort((a, b) => (a.name < b.name ? -1 : 1)) : others;
      entry.sliceFindings = withFindings(entry.sliceFindings, name, found);
      dirty.add(owner);
    },
    deleteSlice(namespace, name) {
      dropSlice(`${namespace}/${name}`, name);
    },
    setNode(next) {
      if (sameNodeView(node, next)) return;
      if (!sameForRoutes(node, next)) for (const key of entries.keys()) dirty.add(key);
      node = next;
    },
    setEjected(next) {
      const changed = changedAddresses(ejected, next);
      ejected = new Set(next);
      if (changed.size === 0) return;
      for (const [key, { slices }] of entries) {
        if (slices.some(({ members }) => members.some(({ ip }) => changed.has(ip)))) dirty.add(key);
      }
    },
    get dirty() {
      return dirty.size > 0 || node !== committedNode;
    },
    commit() {
      const changes: ChangeParts = { healthChecks: [] };
      const anything = dirty.size > 0;
      for (const key of dirty) refresh(key, changes);
      dirty.clear();
      const change: Change = {
        node: node === committedNode ? null : { before: committedNode, after: node },
        frontends: frontends.takeChanges().sort(compareFrontendChanges),
        clusterIPs: addressChanges(clusterIPs.takeChanges()),
        hairpinAddresses: hairpins.takeChanges(),
        healthChecks: changes.healthChecks,
      };
      committedNode = node;
      const found = anything ? findings.collect(frontends) : { added: NO_FINDINGS, removed: NO_FINDINGS };
      const map: ServiceMap = {
        node,
        frontends: frontends.held,
        healthChecks,
        clusterIPs: clusterIPs.held,
        hairpinAddresses: hairpins.addresses,
        findings: findings.current,
      };
      return { map, change, findings: found };
    },
  };
}

interface ChangeParts {
  readonly healthChecks: { key: string; before: HealthCheck | null; after: HealthCheck | null }[];
}

/**
 * Returns the addresses of endpoints that were added to, removed from, or moved within the ejection list.
 */
function changedAddresses(before: ReadonlySet<EndpointKey>, after: ReadonlySet<EndpointKey>): Set<string> {
  const changed = before.symmetricDifference(after);
  const keptAfter = [...after].filter((key) => before.has(key));
  const keptBefore = [...before].filter((key) => after.has(key));
  const isMoved = keptBefore.some((key, i) => key !== keptAfter[i]);
  return new Set(
    [...(isMoved ? before.union(after) : changed)].map((key) =>
      key.slice(0, key.lastIndexOf(':')).replace(/^\[(.*)\]$/, '$1'),
    ),
  );
}

function addressChanges(changes: readonly { key: string; before: unknown; after: unknown }[]) {
  return {
    added: changes.filter(({ before }) => before === null).map(({ key }) => key),
    removed: changes.filter(({ after }) => after === null).map(({ key }) => key),
  };
}

function withFindings(
  all: ReadonlyMap<string, readonly Finding[]> | null,
  name: string,
  found: readonly Finding[],
): ReadonlyMap<string, readonly Finding[]> | null {
  if (all === null && found.length === 0) return null;
  const next = new Map(all);
  if (found.length > 0) next.set(name, found);
  else next.delete(name);
  return next.size > 0 ? next : null;
}

function nameOf(object: ServiceObject | EndpointSliceObject): { namespace: string; name: string } {
  const meta = asRecord(asRecord(object)?.['metadata']);
  const text = (value: unknown) => (typeof value === 'string' ? value : '');
  return { namespace: text(meta?.['namespace']), name: text(meta?.['name']) };
}

function keyOf(object: ServiceObject): string {
  const { namespace, name } = nameOf(object);
  return [namespace, name].join('/');
}
