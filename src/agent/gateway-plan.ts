import { attach } from '../gateway/attach.ts';
import { gatewayOf, nodePortOf } from '../gateway/gateway-service.ts';
import type { Place } from '../gateway/haproxy/held-sockets.ts';
import { FIRST_SOCKET } from '../gateway/haproxy/proxy-process.ts';
import { render } from '../gateway/haproxy/render.ts';
import type { ProxySettings, RefusedRow, Rendering } from '../gateway/haproxy/rendering.ts';
import type { GatewayObjects } from '../gateway/objects.ts';
import type { AuthorityKey, CertificateKey, GatewayKey, RouteMap } from '../gateway/route-map.ts';
import type { Service } from '../kube/types.ts';

/** What the proxy of a node should do, without the endpoints of Services. */
export interface GatewayPlans {
  readonly routeMap: RouteMap;
  /** Where the proxy listens: for each port of each gateway, each address of the node. */
  readonly places: readonly Place[];
}

/** Computes where a node's proxy listens, and what for. Pure. */
export function planGateways(
  objects: GatewayObjects,
  services: readonly Service[],
  addresses: readonly string[],
): GatewayPlans & { readonly nodePort: (gateway: GatewayKey, port: number) => number | undefined } {
  const { routeMap } = attach(objects);
  const byKey = new Map(services.map((service) => [gatewayOf(service), service]));
  const nodePort = (gateway: GatewayKey, port: number) => {
    const service = byKey.get(gateway);
    return service && nodePortOf(service, port);
  };
  const ports = routeMap.gateways.flatMap(({ key, ports }) =>
    ports
      .filter(({ kind }) => kind === 'http' || kind === 'tls')
      .flatMap(({ port }) => nodePort(key, port) ?? []),
  );
  const places = [...new Set(ports)]
    .sort((a, b) => a - b)
    .flatMap((port) => addresses.map((address) => ({ address, port })));
  return { routeMap, places, nodePort };
}

/** Renders plans for the sockets that are open. Pure. */
export function renderPlans(
  { routeMap, nodePort }: ReturnType<typeof planGateways>,
  open: readonly Place[],
  more: {
    readonly settings: ProxySettings;
    readonly certificates: ReadonlyMap<CertificateKey, string>;
    readonly authorities: ReadonlyMap<AuthorityKey, string>;
    readonly fallbackCertificate: string;
  },
  excluded: ReadonlySet<string>,
): Rendering {
  const bindsOf = new Map<number, string[]>();
  for (const [i, { port }] of open.entries())
    bindsOf.set(port, [...(bindsOf.get(port) ?? []), `fd@${FIRST_SOCKET + i}`]);
  return render(
    {
      ...more,
      routeMap,
      binds: (gateway, port) => bindsOf.get(nodePort(gateway, port) ?? -1) ?? [],
    },
    excluded,
  );
}

/**
 * Returns the rows to leave out, by a search for those that HAProxy refuses: `check` returns its complaint about a rendering
 * without the rows of a set. At most `attempts` checks; then all rows that may be the cause are left out. Empty if the fault is
 * not in a row.
 */
export async function findRefused(
  rows: readonly string[],
  check: (excluded: ReadonlySet<string>) => Promise<string | null>,
  attempts: number,
): Promise<RefusedRow[]> {
  const refused: RefusedRow[] = [];
  let left = attempts - 1;
  // Refused without any row: the fault is elsewhere.
  if ((await check(new Set(rows))) !== null) return [];
  /** Leaves out all but `kept`: whether these are refused. */
  const complaintAbout = async (kept: readonly string[]): Promise<string | null> => {
    left--;
    const keptRows = new Set(kept);
    return await check(new Set(rows.filter((row) => !keptRows.has(row))));
  };
  const search = async (
    parts: readonly (readonly string[])[],
    known: string | null,
    found: (part: readonly string[], problem: string) => void,
  ): Promise<void> => {
    const problem =
      known ?? (left > 0 ? await complaintAbout(parts.flat()) : 'not checked: too many routes are refused');
    if (problem === null) return;
    if (parts.length === 1 || left <= 0) {
      for (const part of parts) found(part, problem);
      return;
    }
    const middle = parts.length >> 1;
    await search(parts.slice(0, middle), null, found);
    await search(parts.slice(middle), null, found);
  };
  // First whose they are: many refused rows of one namespace use up the attempts, and must not take others' rows with them.
  const suspects: (readonly [readonly string[], string])[] = [];
  const owners = [...Map.groupBy(rows, namespaceOfRow).values()];
  if (rows.length > 0)
    await search(owners, await complaintAbout(rows), (part, problem) => suspects.push([part, problem]));
  for (const [part, problem] of suspects)
    await search(
      part.map((id) => [id]),
      problem,
      (ids, reason) => refused.push(...ids.map((id) => ({ id, reason }))),
    );
  return refused;
}

/** Rows have ids such as "ingress/NAMESPACE/NAME/0/1". */
const namespaceOfRow = (id: string): string => id.split('/')[1] ?? '';
