import { explainRequest, nextCommand } from '../gateway/explain-request.ts';
import { listGatewayObjects } from '../gateway/list-objects.ts';
import {
  type GatewayPlace,
  gatewayAt,
  gatewaysNamed,
  type RequestGateways,
  readRequestGateways,
} from '../gateway/request-gateways.ts';
import { type RequestUrl, readRequestUrl } from '../gateway/request-url.ts';
import type { GatewayKey } from '../gateway/route-map.ts';
import type { Client } from '../kube/client.ts';
import { familyOf, hostPort } from '../lib/address.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { FlowExplainer } from './explainer.ts';

/**
 * Explains a flow; of a URL that a gateway has, what the gateway does with the request as well, and the packet's way to the
 * gateway. `client`: opens the user's client of the API server; it is called for URLs only.
 */
export async function explainUrl(
  request: ExplainRequest,
  client: () => Client,
  { explain }: FlowExplainer,
): Promise<Explanation> {
  const url = readRequestUrl(request.to);
  if (url === null) return await explain(request);
  const [plain, { objects, unread }] = await Promise.all([
    explain(request),
    listGatewayObjects(client(), url.secure),
  ]);
  const gateways = readRequestGateways(objects);
  const found = findGateway(gateways, url, plain);
  if (found === null) return withUnread(plain, unread);
  const { gateway, others, address } = found;
  const place = gateways.places.find(({ key }) => key === gateway);
  const wanted = address ?? chooseAddress(place, request);
  // A name that DNS does not lead to the gateway is explained by the gateway's address.
  const way =
    address !== null || wanted === null
      ? plain
      : await explain({ ...request, to: `${hostPort({ ip: wanted, port: url.port })}/tcp` });
  const explained = explainRequest(gateways, url, {
    ...{ gateway, others, address: wanted },
    source:
      way.endpoints.find(({ clientSeen }) => clientSeen !== null)?.clientSeen ?? way.packet?.source ?? null,
  });
  const node = way.endpoints.find(({ node: one }) => one !== null)?.node ?? null;
  return {
    ...way,
    to: request.to,
    gateway: {
      ...explained,
      notes: [...notesOf(url, plain, found, wanted), ...unreadNotes(unread)],
      next: node === null ? null : nextCommand(explained, node),
    },
  };
}

interface FoundGateway {
  readonly gateway: GatewayKey;
  readonly others: readonly GatewayKey[];
  /** The gateway's address that the URL has, or that its name resolves to; null: DNS does not lead to the gateway. */
  readonly address: string | null;
}

function findGateway(gateways: RequestGateways, url: RequestUrl, plain: Explanation): FoundGateway | null {
  const address = plain.packet?.destination ?? url.address;
  const there = address === null ? null : gatewayAt(gateways, address);
  if (there !== null) return { gateway: there, others: [], address };
  if (url.address !== null || isService(gateways, address)) return null;
  const [gateway, ...others] = gatewaysNamed(gateways, url);
  return gateway === undefined ? null : { gateway, others, address: null };
}

/** Reports whether a name leads to a Service of the cluster: no gateway is meant then. */
const isService = ({ objects }: RequestGateways, address: string | null): boolean =>
  address !== null &&
  objects.services.some(({ spec }) => {
    const addresses = (spec as { clusterIPs?: readonly string[] } | undefined)?.clusterIPs;
    return Array.isArray(addresses) && addresses.includes(address);
  });

/** Returns the gateway's address that a client would use: clients in the cluster reach its cluster IP, too. */
function chooseAddress(place: GatewayPlace | undefined, { from, family }: ExplainRequest): string | null {
  const isOutside = /^outside(@|$)/.test(from.trim());
  const all = [...(place?.outer ?? []), ...(isOutside ? [] : (place?.inner ?? []))];
  return all.find((address) => family === null || familyOf(address) === family) ?? null;
}

function notesOf(
  { name, port }: RequestUrl,
  { from, packet }: Explanation,
  { gateway, others, address }: FoundGateway,
  wanted: string | null,
): readonly string[] {
  const notes: string[] = [];
  if (others.length > 0)
    notes.push(
      `other gateways have this name, too: ${others.slice(0, 4).join(', ')}${others.length > 4 ? ', …' : ''}`,
    );
  if (wanted === null) notes.push(`${gateway} has no address yet`);
  else if (address === null) {
    const lead =
      packet === null ? 'does not resolve there' : `is ${packet.destination} there, which is not the gateway`;
    notes.push(
      `from ${from}, ${name} ${lead}: the path to the gateway's address is explained (curl --resolve ${name}:${port}:${wanted.includes(':') ? `[${wanted}]` : wanted})`,
    );
  }
  return notes;
}

const unreadNotes = (unread: readonly string[]): readonly string[] =>
  unread.length === 0
    ? []
    : [`not allowed to read: ${unread.join(', ')}; Secrets and ConfigMaps count as usable`];

/** Says that a gateway may have the URL, if kinds of objects could not be listed. */
function withUnread(plain: Explanation, unread: readonly string[]): Explanation {
  // Without a Secret or ConfigMap, the hosts of gateways are known all the same.
  const kinds = unread.filter((one) => !one.includes(' '));
  if (kinds.length === 0) return plain;
  const text = `gateways are considered in part only: not allowed to list ${kinds.join(', ')}`;
  return { ...plain, steps: [{ subject: 'name', object: null, ruleOrKey: null, text }, ...plain.steps] };
}
