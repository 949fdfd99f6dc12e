import type { EndpointKey } from './endpoint-key.ts';
import { sameForRoutes, sameNodeView } from './equality.ts';
import { createFindingTable } from './finding-table.ts';
import { createMapClaims } from './map-claims.ts';
import type { Change, Finding, NodeView, ServiceMap } from './model.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import { compileService } from './service-compiler.ts';
import { createServiceEntries, findingsOf } from './service-entries.ts';

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

const NO_FINDINGS: readonly Finding[] = [];
const NONE: ReadonlySet<EndpointKey> = new Set();

/** Creates an empty table for one node. Pure: no clock, no I/O, no randomness. */
export function createServiceTable(initialNode: NodeView): ServiceTable {
  let node = initialNode;
  let committedNode: NodeView | null = null;
  let ejected: ReadonlySet<EndpointKey> = NONE;
  const entries = createServiceEntries();
  const { all, dirty } = entries;
  const claims = createMapClaims((owner) => all.get(owner)?.compiled?.createdAt);
  const findings = createFindingTable();

  /** Recompiles one Service, claims its frontends and addresses, and notes its findings. */
  const refresh = (key: string) => {
    const entry = all.get(key);
    if (!entry) return;
    const before = entry.compiled;
    const after = entry.service && compileService(entry.service, entry.slices, { node, ejected }, before);
    entry.compiled = after;
    claims.replace(key, before, after);
    findings.set(key, findingsOf(entry));
    entries.forgetEmpty(key);
  };

  return {
    setService: entries.setService,
    deleteService: entries.deleteService,
    setSlice: entries.setSlice,
    deleteSlice: entries.deleteSlice,
    setNode(next) {
      if (sameNodeView(node, next)) return;
      if (!sameForRoutes(node, next)) for (const key of all.keys()) dirty.add(key);
      node = next;
    },
    setEjected(next) {
      const changed = changedAddresses(ejected, next);
      ejected = new Set(next);
      if (changed.size === 0) return;
      for (const [key, { slices }] of all) {
        if (slices.some(({ members }) => members.some(({ ip }) => changed.has(ip)))) dirty.add(key);
      }
    },
    get dirty() {
      return dirty.size > 0 || node !== committedNode;
    },
    commit() {
      const anything = dirty.size > 0;
      for (const key of dirty) refresh(key);
      dirty.clear();
      const change: Change = {
        node: node === committedNode ? null : { before: committedNode, after: node },
        ...claims.takeChanges(),
      };
      committedNode = node;
      const found = anything
        ? findings.collect(claims.frontends)
        : { added: NO_FINDINGS, removed: NO_FINDINGS };
      return { map: { node, ...claims.held, findings: findings.current }, change, findings: found };
    },
  };
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
