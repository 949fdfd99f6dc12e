import type { PathMatch, RouteRow } from '../route-map.ts';

/**
 * What the most specific literal path of a request leads to: the rows that may take it, in their order, up to the first that
 * surely does. Several rows are tried one by one; most paths have one.
 */
export interface PathGroup {
  readonly rows: readonly RouteRow[];
  /** The last of `rows` takes whatever the others have left. */
  readonly isClosed: boolean;
}

export interface PathGroups {
  readonly exact: ReadonlyMap<string, PathGroup>;
  /** By prefix, with a slash at its end. */
  readonly prefix: ReadonlyMap<string, PathGroup>;
  /** Requests without any of these paths: rows with regular expressions; null: there are none. */
  readonly other: PathGroup | null;
}

/** Returns the groups of a table: all literal paths that contain a path contain each other, so the longest decides. */
export function pathGroups(rows: readonly RouteRow[]): PathGroups {
  const order = new Map(rows.map((row, i) => [row, i]));
  const exactRows = new Map<string, RouteRow[]>();
  const prefixRows = new Map<string, RouteRow[]>();
  const regexRows: RouteRow[] = [];
  const put = (map: Map<string, RouteRow[]>, key: string, row: RouteRow) => {
    const known = map.get(key);
    if (known) known.push(row);
    else map.set(key, [row]);
  };
  for (const row of rows) {
    if (row.path.kind === 'regex') regexRows.push(row);
    else if (row.path.kind === 'exact') put(exactRows, row.path.path, row);
    else put(prefixRows, slashed(row.path.path), row);
  }
  const groupOf = (found: readonly RouteRow[]): PathGroup => {
    const candidates = [...found, ...regexRows].sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0));
    const end = candidates.findIndex(takesItsPath);
    return end < 0
      ? { rows: candidates, isClosed: false }
      : { rows: candidates.slice(0, end + 1), isClosed: true };
  };
  const containing = (path: string) => prefixesOf(path).flatMap((prefix) => prefixRows.get(prefix) ?? []);
  return {
    exact: new Map(
      [...exactRows].map(([path, found]) => [path, groupOf([...found, ...containing(slashed(path))])]),
    ),
    prefix: new Map([...prefixRows.keys()].map((path) => [path, groupOf(containing(path))])),
    other: regexRows.length > 0 ? groupOf([]) : null,
  };
}

/** Reports whether a row takes every request of its path. */
function takesItsPath({ path, method, headers, query }: RouteRow): boolean {
  return path.kind !== 'regex' && method === null && headers.length === 0 && query.length === 0;
}

export const slashed = (path: string): string => (path.endsWith('/') ? path : `${path}/`);

/** Returns the prefixes by whole segments that contain a path with a slash at its end, and this path. */
function prefixesOf(path: string): readonly string[] {
  const prefixes: string[] = [];
  for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1))
    prefixes.push(path.slice(0, slash + 1));
  return prefixes;
}

/** The path of a match as text. */
export const pathText = (path: PathMatch): string => (path.kind === 'regex' ? path.regex : path.path);
