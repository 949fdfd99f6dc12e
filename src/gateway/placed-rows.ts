import { compareHosts, patternsOf } from './host-pattern.ts';
import { compareText } from './identity.ts';
import type { HostPattern, PathMatch, RouteRow } from './route-map.ts';

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

/** A placed row with what its tables need of it. */
export interface PreparedRow extends PlacedRow {
  /** Equal for rows that take the same requests. */
  readonly key: string;
  readonly takesAll: boolean;
}

/** Sorts rows by host and precedence, once for all listeners that they are attached to. */
export function prepareRows(placed: readonly PlacedRow[]): readonly PreparedRow[] {
  return placed
    .map((entry) => ({ ...entry, key: matchKey(entry.row), takesAll: takesAll(entry.row) }))
    .sort(comparePlaced);
}

/**
 * Prepares rows for the tables of many listeners: returns those whose hosts a listener can have, without looking at all for
 * each listener.
 */
export function rowsByListener(
  placed: readonly PreparedRow[],
): (listener: HostPattern) => readonly PreparedRow[] {
  const own = new Map<HostPattern, PreparedRow[]>();
  const within = new Map<HostPattern, PreparedRow[]>();
  const add = (map: Map<HostPattern, PreparedRow[]>, key: HostPattern, row: PreparedRow) => {
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

export function compareHostGroups(
  a: Pick<PlacedRow, 'hostname' | 'oneLabel'>,
  b: Pick<PlacedRow, 'hostname' | 'oneLabel'>,
): number {
  return compareHosts(a.hostname, b.hostname) || Number(b.oneLabel) - Number(a.oneLabel);
}

/** Rows of one group can have different hosts of their own: a listener's host cuts wider ones. The most specific goes first. */
function comparePlaced(a: PlacedRow, b: PlacedRow): number {
  const host = compareHostGroups(a, b);
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
