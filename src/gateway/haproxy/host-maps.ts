import { hostMatches } from '../host-pattern.ts';
import type { HostPattern, HostTable } from '../route-map.ts';

/** A listener as the choice of a table by name needs it. */
export interface NamedListener<Table extends NamedTable> {
  readonly hostname: HostPattern;
  readonly hosts: readonly Table[];
}

type NamedTable = Pick<HostTable, 'hostname'> & { readonly oneLabel?: boolean };

/** What a name leads to: the index of its listener, and a table of it; no table: the listener has none for this name. */
export interface Resolution<Table> {
  readonly listener: number;
  readonly table: Table | null;
}

/** Lookups that give for every name what the search of its listener, and then of its table, would find. */
export interface HostMaps<Table> {
  readonly exact: ReadonlyMap<string, Resolution<Table> | null>;
  /** By the name without its first label. */
  readonly oneLabel: ReadonlyMap<string, Resolution<Table> | null>;
  /** By suffix with its dot, longest first. */
  readonly suffixes: ReadonlyMap<string, Resolution<Table> | null>;
  readonly other: Resolution<Table> | null;
}

/** A label that no name has: it stands for those that no pattern names. */
const ANY = '~';

/**
 * Flattens listeners and their tables, each most specific first. All patterns that a name has contain each other, so the most
 * specific one of all listeners and tables decides which listener and table the name has.
 */
export function hostMaps<Table extends NamedTable>(
  listeners: readonly NamedListener<Table>[],
): HostMaps<Table> {
  const exact = new Map<string, Resolution<Table> | null>();
  const oneLabel = new Map<string, Resolution<Table> | null>();
  const suffixes = new Set<string>();
  const find = createFinder(listeners);
  const add = ({ hostname, oneLabel: isOne = false }: NamedTable) => {
    if (hostname === '') return;
    if (!hostname.startsWith('*')) exact.set(hostname, find(hostname));
    else if (isOne) oneLabel.set(hostname.slice(2), find(ANY + hostname.slice(1)));
    else suffixes.add(hostname.slice(1));
  };
  for (const listener of listeners) {
    add(listener);
    for (const table of listener.hosts) add(table);
  }
  const longestFirst = [...suffixes].sort((a, b) => b.length - a.length || (a < b ? -1 : 1));
  return {
    exact,
    oneLabel,
    suffixes: new Map(longestFirst.map((suffix) => [suffix, find(`${ANY}.${ANY}${suffix}`)])),
    other: find(ANY),
  };
}

/** Returns the search, with whole names found by an index: one listener may have thousands. */
function createFinder<Table extends NamedTable>(listeners: readonly NamedListener<Table>[]) {
  const split = <T extends NamedTable>(list: readonly T[]) => {
    const names = new Map<string, number>();
    const others: number[] = [];
    for (const [i, { hostname }] of list.entries()) {
      if (hostname === '' || hostname.startsWith('*')) others.push(i);
      else if (!names.has(hostname)) names.set(hostname, i);
    }
    return (name: string): number => {
      const matches = (i: number) => hostMatches(list[i]?.hostname ?? '', name, list[i]?.oneLabel === true);
      return names.get(name) ?? others.find(matches) ?? -1;
    };
  };
  const listenerOf = split(listeners);
  const tablesOf = listeners.map(({ hosts }) => split(hosts));
  return (name: string): Resolution<Table> | null => {
    const listener = listenerOf(name);
    if (listener < 0) return null;
    const table = tablesOf[listener]?.(name) ?? -1;
    return { listener, table: listeners[listener]?.hosts[table] ?? null };
  };
}
