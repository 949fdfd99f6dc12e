import { hostMatches, intersectHosts } from './host-pattern.ts';
import { compareHostGroups, type PreparedRow } from './placed-rows.ts';
import type { HostPattern, HostTable } from './route-map.ts';

interface GroupRow extends Pick<PreparedRow, 'row' | 'key' | 'takesAll'> {
  /** Its host is wider than that of its group: the listener's host cuts it. */
  readonly wide: boolean;
}

interface Group {
  readonly hostname: HostPattern;
  readonly oneLabel: boolean;
  /** In the order of the prepared rows: of the most specific host first. */
  readonly rows: GroupRow[];
}

/**
 * Bounds the rows of less specific hosts that all tables of a port repeat: with thousands of hosts and thousands of rows for
 * every host, complete tables would have millions.
 */
const MAX_REPEATED_ROWS = 500_000;
const MIN_REPEATED_ROWS = 16;

export interface HostTables {
  readonly tables: readonly HostTable[];
  /** Where tables could not repeat all rows of less specific hosts: how many each has of them; null: all are complete. */
  readonly cutAt: number | null;
}

/**
 * Returns the tables of a listener. A request that no row of its most specific host takes is tried against those of the less
 * specific ones, as the precedence of the API says: their rows follow in the same table, up to a row that takes everything.
 * A row that an equal match before it hides is left out. `listeners`: the number of listeners that share the port.
 */
export function hostTables(
  prepared: readonly PreparedRow[],
  listener: HostPattern,
  listeners: number,
): HostTables {
  const groups = groupByHost(prepared, listener);
  const most = Math.max(
    MIN_REPEATED_ROWS,
    Math.floor(MAX_REPEATED_ROWS / Math.max(groups.size * listeners, 1)),
  );
  const complete = new Map<string, readonly GroupRow[]>();
  let cut = false;
  const completeRows = (key: string): readonly GroupRow[] => {
    const known = complete.get(key);
    if (known) return known;
    const group = groups.get(key);
    if (!group) return [];
    const wider = lessSpecific(group.hostname, group.oneLabel).find((other) => groups.has(other));
    const following = wider === undefined ? [] : completeRows(wider);
    const { rows, left } = withFollowing(group.rows, following, most);
    cut ||= left;
    complete.set(key, rows);
    return rows;
  };
  const tables = [...groups]
    .sort(([, a], [, b]) => compareHostGroups(a, b))
    .map(([key, { hostname, oneLabel }]) => ({
      hostname,
      oneLabel,
      rows: completeRows(key).map(({ row }) => row),
    }));
  return { tables, cutAt: cut ? most : null };
}

/** Returns the message of the finding that tables were cut. */
export const tooManyRows = (place: string, cutAt: number): string =>
  `${place}: so many hosts have rules that each has only the first ${cutAt} rules of less specific hostnames: ` +
  'give routes without hostname, or with wildcards, a listener of their own';

/** Appends at most `most` rows of wider hosts to a host's own; `left`: there were more. */
function withFollowing(
  own: readonly GroupRow[],
  following: readonly GroupRow[],
  most: number,
): { readonly rows: readonly GroupRow[]; readonly left: boolean } {
  const seen = new Set<string>();
  const rows: GroupRow[] = [];
  let repeated = 0;
  for (const [list, repeats] of [
    [own, false],
    [following, true],
  ] as const)
    for (const keyed of list) {
      if (seen.has(keyed.key)) continue;
      if ((repeats || keyed.wide) && ++repeated > most) return { rows, left: true };
      seen.add(keyed.key);
      rows.push(keyed);
      if (keyed.takesAll) return { rows, left: false };
    }
  return { rows, left: false };
}

function groupByHost(prepared: readonly PreparedRow[], listener: HostPattern): Map<string, Group> {
  const groups = new Map<string, Group>();
  for (const entry of prepared) {
    const hostname = intersectHosts(entry.hostname, listener);
    if (hostname === null) continue;
    const wide = hostname !== entry.hostname;
    if (entry.oneLabel && wide && !hasOneLabel(entry.hostname, hostname)) continue;
    const oneLabel = entry.oneLabel && !wide && hostname.startsWith('*');
    const key = groupKey(hostname, oneLabel);
    const row = { row: entry.row, key: entry.key, takesAll: entry.takesAll, wide };
    const known = groups.get(key);
    if (known) known.rows.push(row);
    else groups.set(key, { hostname, oneLabel, rows: [row] });
  }
  return groups;
}

/** Reports whether a narrower host of a listener has names that a wildcard of one label has: only a whole name can. */
const hasOneLabel = (wildcard: HostPattern, hostname: HostPattern): boolean =>
  wildcard === '' || (!hostname.startsWith('*') && hostMatches(wildcard, hostname, true));

const groupKey = (hostname: HostPattern, oneLabel: boolean): string => `${hostname}${oneLabel ? '+1' : ''}`;

/** Returns the keys of the groups whose hosts contain all hosts of this one, most specific first. */
function lessSpecific(hostname: HostPattern, oneLabel: boolean): readonly string[] {
  if (hostname === '') return [];
  const keys: string[] = [];
  const wild = hostname.startsWith('*.');
  if (wild && oneLabel) keys.push(hostname);
  const start = wild ? 2 : 0;
  let first = true;
  for (let dot = hostname.indexOf('.', start); dot >= 0; dot = hostname.indexOf('.', dot + 1)) {
    const pattern = `*${hostname.slice(dot)}`;
    if (first && !wild) keys.push(groupKey(pattern, true));
    keys.push(pattern);
    first = false;
  }
  return [...keys, ''];
}
