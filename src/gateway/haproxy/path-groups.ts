import type { PathMatch, RouteRow } from '../route-map.ts';

/** What the most specific literal path of a request leads to: a row that takes it, or null: one of the hard rows may. */
export type PathTarget = RouteRow | null;

export interface PathGroups {
  readonly exact: ReadonlyMap<string, PathTarget>;
  /** By prefix, with a slash at its end. */
  readonly prefix: ReadonlyMap<string, PathTarget>;
  /** Whether requests without any of these paths may be for a row with a regular expression. */
  readonly other: boolean;
  /** Rows that are tried one by one, in their order: each once, however many paths lead to it. */
  readonly hard: readonly RouteRow[];
}

/** Returns where the paths of a table lead: all literal paths that contain a path contain each other, so the longest decides. */
export function pathGroups(rows: readonly RouteRow[]): PathGroups {
  const order = new Map(rows.map((row, i) => [row, i]));
  const orderOf = (row: RouteRow) => order.get(row) ?? 0;
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
  const [firstRegex] = regexRows;
  const firstRegexOrder = firstRegex ? orderOf(firstRegex) : Number.POSITIVE_INFINITY;
  const hard = new Set<RouteRow>();
  const targetOf = (found: readonly RouteRow[]): PathTarget => {
    const candidates = found.length > 1 ? found.toSorted((a, b) => orderOf(a) - orderOf(b)) : found;
    const end = candidates.findIndex(takesItsPath);
    const closing = candidates[end];
    if (closing && end === 0 && orderOf(closing) < firstRegexOrder) return closing;
    for (const row of closing ? candidates.slice(0, end + 1) : candidates) hard.add(row);
    return null;
  };
  const containing = (path: string) => prefixesOf(path).flatMap((prefix) => prefixRows.get(prefix) ?? []);
  const exact = new Map(
    [...exactRows].map(([path, found]) => [path, targetOf([...found, ...containing(slashed(path))])]),
  );
  const prefix = new Map([...prefixRows.keys()].map((path) => [path, targetOf(containing(path))]));
  for (const row of regexRows) hard.add(row);
  return {
    exact,
    prefix,
    other: regexRows.length > 0,
    hard: [...hard].sort((a, b) => orderOf(a) - orderOf(b)),
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
