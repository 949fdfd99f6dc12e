import { compareHosts, hostMatches, intersectHosts, patternsOf } from './host-pattern.ts';
import { compareText } from './identity.ts';
import type { HostPattern, HostTable, PathMatch, RouteRow } from './route-map.ts';

/** What decides between rows of one host, as numbers that are compared in this order; the smaller wins. */
export type Rank = readonly number[];

/** A row with the host that it is for and its precedence there. */
export interface PlacedRow {
  readonly hostname: HostPattern;
  readonly oneLabel: boolean;
  readonly rank: Rank;
  /** Decide between equal ranks: namespace and name of the object, then the place of the match in it. */
  readonly owner: string;
  readonly place: number;
  readonly row: RouteRow;
}

interface KeyedRow {
  readonly row: RouteRow;
  readonly key: string;
  readonly takesAll: boolean;
  /** Its host is wider than that of its group: the listener's host cuts it. */
  readonly wide: boolean;
}

interface Group {
  readonly hostname: HostPattern;
  readonly oneLabel: boolean;
  readonly rows: readonly KeyedRow[];
}

/**
 * Bounds the rows of less specific hosts that all tables of a port repeat: with thousands of hosts and thousands of rows for
 * every host, complete tables would have millions.
 */
const MOST_REPEATED_ROWS = 500_000;
const LEAST_REPEATED_ROWS = 16;

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
  placed: readonly PlacedRow[],
  listener: HostPattern,
  listeners: number,
): HostTables {
  const groups = groupByHost(placed, listener);
  const most = Math.max(
    LEAST_REPEATED_ROWS,
    Math.floor(MOST_REPEATED_ROWS / Math.max(groups.size * listeners, 1)),
  );
  const complete = new Map<string, readonly KeyedRow[]>();
  let cut = false;
  const completeRows = (key: string): readonly KeyedRow[] => {
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
    .sort(([, a], [, b]) => compareGroups(a, b))
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
  own: readonly KeyedRow[],
  following: readonly KeyedRow[],
  most: number,
): { readonly rows: readonly KeyedRow[]; readonly left: boolean } {
  const seen = new Set<string>();
  const rows: KeyedRow[] = [];
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

function groupByHost(placed: readonly PlacedRow[], listener: HostPattern): Map<string, Group> {
  const lists = new Map<string, { hostname: HostPattern; oneLabel: boolean; rows: PlacedRow[] }>();
  for (const entry of placed) {
    const hostname = intersectHosts(entry.hostname, listener);
    if (hostname === null) continue;
    const oneLabel = entry.oneLabel && hostname === entry.hostname && hostname.startsWith('*');
    if (entry.oneLabel && hostname !== entry.hostname && !hasOneLabel(entry.hostname, hostname)) continue;
    const key = groupKey(hostname, oneLabel);
    const known = lists.get(key);
    if (known) known.rows.push(entry);
    else lists.set(key, { hostname, oneLabel, rows: [entry] });
  }
  const groups = new Map<string, Group>();
  for (const [key, { hostname, oneLabel, rows }] of lists)
    groups.set(key, {
      hostname,
      oneLabel,
      rows: rows.sort(comparePlaced).map((entry) => keyedRow(entry, hostname)),
    });
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

const keyedRow = (placed: PlacedRow, group: HostPattern): KeyedRow => ({
  row: placed.row,
  key: matchKey(placed.row),
  takesAll: takesAll(placed.row),
  wide: placed.hostname !== group,
});

/** Returns text that is equal for rows that take the same requests. */
export function matchKey({ path, method, headers, query }: RouteRow): string {
  const simple = `${method ?? ''} ${path.kind} ${path.kind === 'regex' ? path.regex : path.path}`;
  if (headers.length === 0 && query.length === 0) return simple;
  const sorted = (matches: RouteRow['headers']) =>
    matches.map(({ name, kind, value }) => JSON.stringify([name, kind, value])).sort();
  return `${simple}\n${JSON.stringify([sorted(headers), sorted(query)])}`;
}

function takesAll({ path, method, headers, query }: RouteRow): boolean {
  return (
    path.kind === 'prefix' &&
    path.path === '/' &&
    method === null &&
    headers.length === 0 &&
    query.length === 0
  );
}

function compareGroups(
  a: Pick<Group, 'hostname' | 'oneLabel'>,
  b: Pick<Group, 'hostname' | 'oneLabel'>,
): number {
  return compareHosts(a.hostname, b.hostname) || Number(b.oneLabel) - Number(a.oneLabel);
}

/** Rows of one group can have different hosts of their own: a listener's host cuts wider ones. The most specific goes first. */
function comparePlaced(a: PlacedRow, b: PlacedRow): number {
  const host = compareGroups(a, b);
  if (host !== 0) return host;
  const length = Math.max(a.rank.length, b.rank.length);
  for (let i = 0; i < length; i++) {
    const difference = (a.rank[i] ?? 0) - (b.rank[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return compareText(a.owner, b.owner) || a.place - b.place;
}

const PATH_RANK: Readonly<Record<PathMatch['kind'], number>> = { exact: 0, regex: 1, prefix: 2 };

/**
 * Returns the precedence of a match: an exact path, then a regular expression, then the longest prefix; then a method, then
 * the number of headers and of query parameters; then the age of the object.
 */
export function rankOf(
  { path, method, headers, query }: Pick<RouteRow, 'path' | 'method' | 'headers' | 'query'>,
  createdAt: number,
): Rank {
  return [
    PATH_RANK[path.kind],
    -(path.kind === 'regex' ? path.regex : path.path).length,
    method === null ? 1 : 0,
    -headers.length,
    -query.length,
    createdAt,
  ];
}

/**
 * Prepares rows for the tables of many listeners: returns those whose hosts a listener can have, without looking at all for
 * each listener.
 */
export function rowsByListener(
  placed: readonly PlacedRow[],
): (listener: HostPattern) => readonly PlacedRow[] {
  const own = new Map<HostPattern, PlacedRow[]>();
  const within = new Map<HostPattern, PlacedRow[]>();
  const add = (map: Map<HostPattern, PlacedRow[]>, key: HostPattern, row: PlacedRow) => {
    const known = map.get(key);
    if (known) known.push(row);
    else map.set(key, [row]);
  };
  for (const row of placed) {
    add(own, row.hostname, row);
    for (const wider of patternsOf(row.hostname)) if (wider !== row.hostname) add(within, wider, row);
  }
  return (listener) => [
    ...new Set([listener, ...patternsOf(listener)]).values().flatMap((pattern) => own.get(pattern) ?? []),
    ...(within.get(listener) ?? []),
  ];
}
