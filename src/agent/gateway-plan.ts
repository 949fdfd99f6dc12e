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
 * without the rows of a set. At most `attempts` checks; then all rows that may be the cause are left out.
 */
export async function findRefused(
  rows: readonly string[],
  check: (excluded: ReadonlySet<string>) => Promise<string | null>,
  attempts: number,
): Promise<RefusedRow[]> {
  const refused: RefusedRow[] = [];
  let left = attempts;
  /** Leaves out all but `kept`: whether these are refused. */
  const complaintAbout = async (kept: readonly string[]): Promise<string | null> => {
    left--;
    const keptRows = new Set(kept);
    return await check(new Set(rows.filter((row) => !keptRows.has(row))));
  };
  const search = async (part: readonly string[], known: string | null): Promise<void> => {
    const problem =
      known ?? (left > 0 ? await complaintAbout(part) : 'not checked: too many routes are refused');
    if (problem === null) return;
    if (part.length === 1 || left <= 0) {
      for (const id of part) refused.push({ id, reason: problem });
      return;
    }
    const middle = part.length >> 1;
    await search(part.slice(0, middle), null);
    await search(part.slice(middle), null);
  };
  // If it remains without any row, no row is the cause.
  if (rows.length > 0 && (await complaintAbout([])) === null) await search(rows, null);
  return refused;
}
