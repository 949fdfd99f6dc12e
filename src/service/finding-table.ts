import type { ConflictResolution } from './conflict-resolution.ts';
import { conflictFinding, findingKey, sortFindings } from './findings.ts';
import type { Finding, Frontend } from './model.ts';

/** The findings of all Services. */
export interface FindingTable {
  readonly current: readonly Finding[];
  /** Sets the findings of a Service. */
  set(key: string, findings: readonly Finding[]): void;
  /** Collects the findings of Services and of conflicts; returns those that came and went. */
  collect(frontends: Pick<ConflictResolution<Frontend>, 'hasConflicts' | 'lost'>): {
    readonly added: readonly Finding[];
    readonly removed: readonly Finding[];
  };
}

export function createFindingTable(): FindingTable {
  const entries = new Map<string, readonly Finding[]>();
  let current: readonly Finding[] = [];
  return {
    get current() {
      return current;
    },
    set(key, findings) {
      if (findings.length > 0) entries.set(key, findings);
      else entries.delete(key);
    },
    collect(frontends) {
      if (entries.size === 0 && !frontends.hasConflicts && current.length === 0)
        return { added: [], removed: [] };
      const now = [...entries.values()].flat();
      for (const lost of frontends.lost()) now.push(conflictFinding(lost));
      const known = new Map(current.map((finding) => [findingKey(finding), finding]));
      const added: Finding[] = [];
      current = sortFindings(now).map((finding) => {
        const old = known.get(findingKey(finding));
        if (old) known.delete(findingKey(finding));
        else added.push(finding);
        return old ?? finding;
      });
      return { added, removed: [...known.values()] };
    },
  };
}
