import { compareHosts, hostMatches, intersectHosts } from './host-pattern.ts';
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

interface Group {
  readonly hostname: HostPattern;
  readonly oneLabel: boolean;
  readonly rows: readonly RouteRow[];
}

/**
 * Returns the tables of a listener. A request that no row of its most specific host takes is tried against those of the less
 * specific ones, as the precedence of the API says: their rows follow in the same table, up to a row that takes everything.
 * A row that an equal match before it hides is left out.
 */
export function hostTables(placed: readonly PlacedRow[], listener: HostPattern): readonly HostTable[] {
  const groups = groupByHost(placed, listener);
  return [...groups.values()].sort(compareGroups).map(({ hostname, oneLabel, rows }) => ({
    hostname,
    oneLabel,
    rows: completeRows([rows, ...lessSpecific(hostname, oneLabel).map((key) => groups.get(key)?.rows ?? [])]),
  }));
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
    groups.set(key, { hostname, oneLabel, rows: rows.sort(comparePlaced).map(({ row }) => row) });
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

function completeRows(lists: readonly (readonly RouteRow[])[]): readonly RouteRow[] {
  const seen = new Set<string>();
  const rows: RouteRow[] = [];
  for (const list of lists) {
    for (const row of list) {
      const key = matchKey(row);
      if (seen.has(key)) continue;
      seen.add(key);
      rows.push(row);
      if (takesAll(row)) return rows;
    }
  }
  return rows;
}

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
