import type { GatewayFindings } from './findings.ts';
import { keyOf } from './identity.ts';
import type { Canary } from './ingress-annotations.ts';
import type { IngressPath } from './ingress-rows.ts';
import { type KnownIngress, subject } from './known-ingress.ts';
import { matchKey, type PlacedRow } from './placed-rows.ts';
import type { Forward, RouteRow, ValueMatch } from './route-map.ts';

/**
 * Divides the requests of paths between an Ingress and its canary: the Ingress of the same namespace with the same host and
 * path. A canary of another namespace would take requests that are not its own, and is refused.
 */
export function addCanary(
  paths: readonly IngressPath[],
  ingress: KnownIngress,
  canaries: readonly IngressPath[],
  findings: GatewayFindings,
): void {
  const { canary } = ingress.settings;
  if (!canary) return;
  const { namespace } = ingress.identity;
  const main = new Map<string, IngressPath>();
  for (const path of paths) {
    const [first] = path.rows;
    if (!first || path.identity.namespace !== namespace) continue;
    const key = placeKey(first);
    if (!main.has(key)) main.set(key, path);
  }
  for (const path of canaries) {
    const [own] = path.rows;
    const target = own ? main.get(placeKey(own)) : undefined;
    if (!own || !target || own.row.action.kind !== 'forward') {
      if (!target)
        findings.add(
          subject(ingress.identity),
          'CanaryWithoutMain',
          `${path.field}: no other Ingress of namespace ${namespace} has this host and path`,
        );
      continue;
    }
    const forward = own.row.action;
    target.rows = target.rows.flatMap((main) => divide(main, forward, canary, keyOf(ingress.identity)));
  }
}

const placeKey = ({ hostname, row }: PlacedRow): string =>
  `${hostname} ${row.path.kind} ${matchKey({ ...row, headers: [], query: [], method: null })}`;

/** Returns the rows of a path and its canary, those with a header first. */
function divide(
  main: PlacedRow,
  canary: Forward,
  { weight, total, header, value }: Canary,
  owner: string,
): PlacedRow[] {
  const { action } = main.row;
  if (action.kind !== 'forward' || main.row.headers.length > 0) return [main];
  const rows: PlacedRow[] = [];
  const withHeader = (match: Pick<ValueMatch, 'kind' | 'value'>, chosen: Forward, id: string) => {
    const headers = [{ name: header ?? '', ...match }];
    const row: RouteRow = { ...main.row, id: `${main.row.id}/${id}/${owner}`, headers, action: chosen };
    // One header more than the main row: it goes before it, and after those of another method.
    const rank = [...main.rank];
    rank[3] = (rank[3] ?? 0) - 1;
    rows.push({ ...main, rank, row });
  };
  if (header !== null && value !== null) withHeader(value, canary, 'canary');
  if (header !== null && value === null) {
    withHeader({ kind: 'exact', value: 'always' }, canary, 'canary');
    withHeader({ kind: 'exact', value: 'never' }, action, 'main');
  }
  if (weight === 0) return [...rows, main];
  const share = (backends: Forward['backends'], part: number) =>
    backends.map((backend) => ({ ...backend, weight: backend.weight * part }));
  const backends = [...share(action.backends, total - weight), ...share(canary.backends, weight)];
  return [...rows, { ...main, row: { ...main.row, action: { ...action, backends } } }];
}
