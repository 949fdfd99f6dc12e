import { compileRegex, type RegexMachine } from './regex-machine.ts';
import type { HeaderValue, HostTable, RouteRow, ValueMatch } from './route-map.ts';

/** A row with its place in the order of its table, and its expressions compiled. */
export interface IndexedRow {
  readonly order: number;
  readonly row: RouteRow;
  /** null: no conditions beside the path. */
  readonly conditions: Conditions | null;
  /** Of a path that is a regular expression. */
  readonly path: RegexMachine | null;
}

interface Conditions {
  readonly method: string | null;
  readonly headers: readonly ValueTest[];
  readonly query: readonly ValueTest[];
}

interface ValueTest {
  readonly name: string;
  readonly passes: (value: string) => boolean;
}

interface Segment {
  readonly children: Map<string, Segment>;
  readonly rows: RowList;
}

/** Rows with the same path, in order. Those that ask for a header with one value are found by it: there can be thousands. */
interface RowList {
  readonly rest: IndexedRow[];
  readonly byHeader: Map<string, IndexedRow[]>;
}

const newRowList = (): RowList => ({ rest: [], byHeader: new Map() });

function addRow({ rest, byHeader }: RowList, indexed: IndexedRow): void {
  const header = indexed.row.headers.find(({ kind }) => kind === 'exact');
  if (!header) {
    rest.push(indexed);
    return;
  }
  const key = headerKey(header.name, header.value);
  const known = byHeader.get(key);
  if (known) known.push(indexed);
  else byHeader.set(key, [indexed]);
}

const headerKey = (name: string, value: string): string => `${name}:${value}`;

/** Rows of one host by path: whole paths, prefixes as a trie of segments, and regular expressions in order. */
export interface PathIndex {
  readonly exact: ReadonlyMap<string, RowList>;
  readonly root: Segment;
  readonly regexes: readonly IndexedRow[];
}

/** What conditions are tested against. */
export interface RequestParts {
  readonly path: string;
  readonly method: string;
  /** All headers, names in lower case. */
  readonly headers: readonly HeaderValue[];
  /** All values of a header, by its name in lower case. */
  readonly header: (name: string) => readonly string[];
  /** The first value of a query parameter, as sent; null: it is not there. */
  readonly query: (name: string) => string | null;
}

export function indexPaths({ rows }: HostTable): PathIndex {
  const exact = new Map<string, RowList>();
  const root: Segment = { children: new Map(), rows: newRowList() };
  const regexes: IndexedRow[] = [];
  rows.forEach((row, order) => {
    const indexed: IndexedRow = { order, row, conditions: conditionsOf(row), path: null };
    const { path } = row;
    switch (path.kind) {
      case 'exact': {
        const list = exact.get(path.path) ?? newRowList();
        exact.set(path.path, list);
        addRow(list, indexed);
        return;
      }
      case 'prefix':
        addRow(segmentOf(root, path.path).rows, indexed);
        return;
      case 'regex': {
        const machine = compileRegex(path.regex);
        if (machine) regexes.push({ ...indexed, path: machine });
      }
    }
  });
  return { exact, root, regexes };
}

function segmentOf(root: Segment, path: string): Segment {
  let at = root;
  if (path === '/') return at;
  for (const part of path.slice(1).split('/')) {
    let child = at.children.get(part);
    if (!child) {
      child = { children: new Map(), rows: newRowList() };
      at.children.set(part, child);
    }
    at = child;
  }
  return at;
}

function conditionsOf({ method, headers, query }: RouteRow): Conditions | null {
  if (method === null && headers.length === 0 && query.length === 0) return null;
  return { method, headers: headers.map(testOf), query: query.map(testOf) };
}

function testOf({ name, kind, value }: ValueMatch): ValueTest {
  if (kind === 'exact') return { name, passes: (given) => given === value };
  const machine = compileRegex(value);
  return { name, passes: (given) => machine !== null && machine.match(given) !== null };
}

/** Returns the first row, in the order of the table, that takes a request. */
export function findRow({ exact, root, regexes }: PathIndex, request: RequestParts): IndexedRow | null {
  const { path } = request;
  let best = firstOf(exact.get(path), request, null);
  let at: Segment | undefined = root;
  let start = 1;
  while (at) {
    best = firstOf(at.rows, request, best);
    if (start > path.length || at.children.size === 0) break;
    const end = path.indexOf('/', start);
    at = at.children.get(path.slice(start, end < 0 ? undefined : end));
    // The path "/" has no segment; "/a/" has the segments "a" and "".
    start = end < 0 ? path.length + 1 : end + 1;
  }
  for (const candidate of regexes) {
    if (best !== null && candidate.order > best.order) break;
    if (meets(candidate, request) && candidate.path?.match(path)) return candidate;
  }
  return best;
}

function firstOf(
  list: RowList | undefined,
  request: RequestParts,
  best: IndexedRow | null,
): IndexedRow | null {
  if (!list) return best;
  let found = firstAmong(list.rest, request, best);
  if (list.byHeader.size === 0) return found;
  for (const { name, value } of request.headers)
    found = firstAmong(list.byHeader.get(headerKey(name, value)), request, found);
  return found;
}

function firstAmong(
  rows: readonly IndexedRow[] | undefined,
  request: RequestParts,
  best: IndexedRow | null,
): IndexedRow | null {
  if (!rows) return best;
  for (const row of rows) {
    if (best !== null && row.order > best.order) return best;
    if (meets(row, request)) return row;
  }
  return best;
}

function meets({ conditions }: IndexedRow, request: RequestParts): boolean {
  if (conditions === null) return true;
  if (conditions.method !== null && conditions.method !== request.method) return false;
  for (const { name, passes } of conditions.headers) if (!request.header(name).some(passes)) return false;
  for (const { name, passes } of conditions.query) {
    const value = request.query(name);
    if (value === null || !passes(value)) return false;
  }
  return true;
}
