import type { EdgeVerdict, PodView, ServiceView } from '../view.ts';
import { baseName, countText, namespaceOf } from './format.ts';
import type { LiveEdge, Traffic } from './traffic.ts';
import { isFailure } from './verdicts.ts';

/** A row of the map. Rows of many objects stand for a group. */
export interface MapRow {
  readonly id: string;
  readonly label: string;
  /** Beside the label, in small letters. */
  readonly detail: string;
  /** Above the first row of a group; null: same as the previous row's. */
  readonly heading: string | null;
  readonly target: RowTarget;
  /** Endpoints only: whether it takes new connections. */
  readonly isUsable: boolean;
  readonly rate: number;
  readonly failed: number;
}

/** The target of a row. */
export type RowTarget =
  | { readonly kind: 'namespace'; readonly name: string }
  | { readonly kind: 'service'; readonly name: string }
  | { readonly kind: 'search'; readonly text: string }
  | { readonly kind: 'none' };

/** Connections between two rows with one verdict. */
export interface MapLink {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly verdict: EdgeVerdict;
  readonly rate: number;
  readonly latencyMs: number | null;
}

export interface MapRows {
  readonly clients: readonly MapRow[];
  readonly services: readonly MapRow[];
  readonly endpoints: readonly MapRow[];
  readonly links: readonly MapLink[];
  /** Services of the view that have no row, because there are too many. */
  readonly hiddenServices: number;
  /** The live edges of the view. */
  readonly edges: readonly LiveEdge[];
}

export interface MapQuestion {
  readonly services: ReadonlyMap<string, ServiceView>;
  readonly pods: ReadonlyMap<string, PodView>;
  readonly traffic: Traffic;
  readonly namespace: string | null;
  readonly service: string | null;
  readonly search: string;
  /** Services that are shown one by one; more are grouped by namespace, or left out. */
  readonly limit: number;
}

/** Clients and endpoints that are shown one by one; more are grouped by namespace and by node. */
const MAX_ENDS = 36;
const MAX_LINKS = 200;
/** Rows of namespaces. */
const MAX_GROUPS = 200;
const DIRECT = 'direct';

/** Chooses the rows of the map and the links between them. Their number has a limit, whatever the size of the cluster. */
export function chooseRows(question: MapQuestion): MapRows {
  const { traffic, limit } = question;
  const chosen = chooseServices(question);
  const names = new Set(chosen.map(({ name }) => name));
  const isGrouped =
    question.service === null &&
    question.namespace === null &&
    question.search === '' &&
    chosen.length > limit;
  const edges = [...traffic.edges.values()].filter((edge) => isInView(edge, question, names));
  const shown = isGrouped
    ? chosen
    : chosen
        .toSorted((a, b) => activity(traffic, b) - activity(traffic, a) || (a.name < b.name ? -1 : 1))
        .slice(0, limit)
        .sort((a, b) => (a.name < b.name ? -1 : 1));
  const shownNames = new Set(shown.map(({ name }) => name));
  const serviceRow = (service: string | null): string | null => {
    if (service === null) return DIRECT;
    if (isGrouped) return `ns ${namespaceOf(service)}`;
    return shownNames.has(service) ? `svc ${service}` : null;
  };
  const visible = edges.filter(({ service }) => service === null || shownNames.has(service));

  const clientNames = new Set(visible.map(({ client }) => client));
  const areClientsGrouped = clientNames.size > MAX_ENDS;
  const clientRow = (client: string) =>
    areClientsGrouped ? `from ${clientGroup(client)}` : `from ${client}`;

  const endpointsOf = endpointIndex(shown, isGrouped);
  const reached = new Set(visible.flatMap(({ endpoint }) => endpoint ?? []));
  const endNames = new Set([...endpointsOf.keys(), ...reached]);
  const areEndsGrouped = endNames.size > MAX_ENDS;
  const nodeOf = (end: string) => endpointsOf.get(end)?.node ?? question.pods.get(end)?.node ?? '';
  const endpointRow = (end: string) => (areEndsGrouped ? `node ${nodeOf(end)}` : `to ${end}`);

  const links = new Map<string, GrowingLink>();
  const rates = new Map<string, { rate: number; failed: number }>();
  const count = (row: string, { rate, verdict }: LiveEdge) => {
    let sum = rates.get(row);
    if (!sum) {
      sum = { rate: 0, failed: 0 };
      rates.set(row, sum);
    }
    sum.rate += rate;
    if (isFailure(verdict)) sum.failed += rate;
  };
  const connect = (from: string, to: string, { verdict, rate, latencyMs }: LiveEdge) => {
    const id = `${from} > ${to} ${verdict}`;
    let link = links.get(id);
    if (!link) {
      link = { id, from, to, verdict, rate: 0, latencySum: 0, latencyWeight: 0 };
      links.set(id, link);
    }
    link.rate += rate;
    if (latencyMs === null) return;
    link.latencySum += latencyMs * rate;
    link.latencyWeight += rate;
  };
  for (const edge of visible) {
    const middle = serviceRow(edge.service);
    if (middle === null) continue;
    const from = clientRow(edge.client);
    connect(from, middle, edge);
    count(from, edge);
    count(middle, edge);
    if (edge.endpoint === null) continue;
    const to = endpointRow(edge.endpoint);
    connect(middle, to, edge);
    count(to, edge);
  }

  const row = (id: string, rest: Partial<MapRow> & { label: string }): MapRow => ({
    id,
    detail: '',
    heading: null,
    target: { kind: 'none' },
    isUsable: true,
    rate: rates.get(id)?.rate ?? 0,
    failed: rates.get(id)?.failed ?? 0,
    ...rest,
  });
  return {
    clients: clientRows(clientNames, areClientsGrouped, row),
    services: [
      ...(isGrouped ? namespaceRows(shown, traffic, row) : serviceRows(shown, traffic, row)),
      ...(visible.some(({ service }) => service === null)
        ? [row(DIRECT, { label: 'without a Service', detail: 'pod to pod, and outside', heading: 'direct' })]
        : []),
    ],
    endpoints: endpointRows(endNames, areEndsGrouped, nodeOf, endpointsOf, row),
    links: [...links.values()]
      .map(({ latencySum, latencyWeight, ...link }) => ({
        ...link,
        latencyMs: latencyWeight === 0 ? null : latencySum / latencyWeight,
      }))
      .sort((a, b) => Number(isFailure(b.verdict)) - Number(isFailure(a.verdict)) || b.rate - a.rate)
      .slice(0, MAX_LINKS),
    hiddenServices: chosen.length - shown.length,
    edges,
  };
}

/** A link while its edges are added up; the latency is weighted with their rates. */
interface GrowingLink extends Omit<MapLink, 'rate' | 'latencyMs'> {
  rate: number;
  latencySum: number;
  latencyWeight: number;
}

type MakeRow = (id: string, rest: Partial<MapRow> & { label: string }) => MapRow;
type EndpointIndex = ReadonlyMap<
  string,
  { readonly node: string; readonly isUsable: boolean; readonly detail: string }
>;

function chooseServices({ services, namespace, service, search, traffic }: MapQuestion): ServiceView[] {
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  const busy = new Map<string, string>();
  if (words.length > 0)
    for (const edge of traffic.edges.values())
      if (edge.service !== null) busy.set(edge.service, `${busy.get(edge.service) ?? ''} ${edge.client}`);
  return [...services.values()].filter((one) => {
    if (service !== null) return one.name === service;
    if (namespace !== null && namespaceOf(one.name) !== namespace) return false;
    if (words.length === 0) return true;
    const text = `${searchedText(one)} ${busy.get(one.name)?.toLowerCase() ?? ''}`;
    return words.every((word) => text.includes(word));
  });
}

const searchedTexts = new WeakMap<ServiceView, string>();

/** Returns the words by which a Service is found; kept, since each key of a search asks for those of all Services. */
function searchedText(service: ServiceView): string {
  const known = searchedTexts.get(service);
  if (known !== undefined) return known;
  const { name, type, addresses, externalAddresses, ports, endpoints } = service;
  const text = [
    ...[name, type, ...addresses, ...externalAddresses, ...ports],
    ...endpoints.map(({ addresses, pod, node }) => `${addresses.join(' ')} ${pod} ${node}`),
  ]
    .join(' ')
    .toLowerCase();
  searchedTexts.set(service, text);
  return text;
}

function isInView(
  edge: LiveEdge,
  { namespace, service, search }: MapQuestion,
  names: ReadonlySet<string>,
): boolean {
  if (edge.service !== null) return names.has(edge.service);
  if (service !== null) return false;
  const ends = [edge.client, edge.endpoint ?? ''];
  if (namespace !== null && !ends.some((end) => namespaceOf(end) === namespace)) return false;
  return search === '' || ends.some((end) => end.includes(search.toLowerCase()));
}

/** Services that fail come first, then busy ones. */
function activity(traffic: Traffic, { name }: ServiceView): number {
  const counts = traffic.services.get(name);
  return counts ? counts.failed * 1e6 + counts.rate + 1 : 0;
}

function clientGroup(client: string): string {
  if (client.startsWith('node/')) return 'nodes';
  if (client.startsWith('pod ')) return 'pods that have ended';
  return namespaceOf(client) === '' ? 'addresses outside' : `namespace ${namespaceOf(client)}`;
}

function clientRows(names: ReadonlySet<string>, isGrouped: boolean, row: MakeRow): MapRow[] {
  if (!isGrouped)
    return groupBy([...names].sort(), clientGroup).flatMap(([group, members]) =>
      members.map((name, i) =>
        row(`from ${name}`, {
          label: name.startsWith('node/') ? name.slice('node/'.length) : baseName(name),
          heading: i === 0 ? group : null,
          target: { kind: 'search', text: name },
        }),
      ),
    );
  return groupBy([...names].sort(), clientGroup).map(([group, members], i) =>
    row(`from ${group}`, {
      label: group,
      detail: countText(members.length, 'client'),
      heading: i === 0 ? 'clients' : null,
    }),
  );
}

function serviceRows(services: readonly ServiceView[], traffic: Traffic, row: MakeRow): MapRow[] {
  return groupBy(services, ({ name }) => namespaceOf(name)).flatMap(([namespace, members]) =>
    members.map((one, i) => {
      const counts = traffic.services.get(one.name);
      const ready = one.endpoints.filter(({ state }) => state !== 'not-ready').length;
      return row(`svc ${one.name}`, {
        label: baseName(one.name),
        detail:
          one.type === 'ExternalName'
            ? 'ExternalName'
            : one.endpoints.length > 0
              ? `${ready}/${one.endpoints.length} ready`
              : one.isOnNodes
                ? 'on each node'
                : 'no endpoints',
        heading: i === 0 ? `namespace ${namespace}` : null,
        target: { kind: 'service', name: one.name },
        isUsable:
          ready > 0 ||
          one.isOnNodes ||
          one.type === 'ExternalName' ||
          (counts !== undefined && counts.rate > counts.failed),
        ...(counts ? { rate: counts.rate, failed: counts.failed } : {}),
      });
    }),
  );
}

function namespaceRows(services: readonly ServiceView[], traffic: Traffic, row: MakeRow): MapRow[] {
  return groupBy(services, ({ name }) => namespaceOf(name))
    .slice(0, MAX_GROUPS)
    .map(([namespace, members], i) => {
      const sums = members.map(({ name }) => traffic.services.get(name) ?? { rate: 0, failed: 0 });
      return row(`ns ${namespace}`, {
        label: namespace,
        detail: countText(members.length, 'Service'),
        heading: i === 0 ? 'namespaces' : null,
        target: { kind: 'namespace', name: namespace },
        rate: sums.reduce((sum, { rate }) => sum + rate, 0),
        failed: sums.reduce((sum, { failed }) => sum + failed, 0),
      });
    });
}

/** The endpoints of Services by name; for grouped Services only their nodes matter, and only those with traffic. */
function endpointIndex(services: readonly ServiceView[], isGrouped: boolean): EndpointIndex {
  const index = new Map<string, { node: string; isUsable: boolean; detail: string }>();
  if (isGrouped) return index;
  for (const { endpoints } of services) {
    for (const { addresses, pod, node, state } of endpoints) {
      const [address = ''] = addresses;
      const name = pod ?? address;
      const isUsable = state !== 'not-ready' || index.get(name)?.isUsable === true;
      const detail = [
        pod === null ? '' : address,
        state === 'ready' ? '' : state === 'not-ready' ? 'not ready' : state,
      ];
      index.set(name, {
        node: node ?? '',
        isUsable,
        detail: detail.filter((part) => part !== '').join(', '),
      });
    }
  }
  return index;
}

function endpointRows(
  names: ReadonlySet<string>,
  isGrouped: boolean,
  nodeOf: (name: string) => string,
  index: EndpointIndex,
  row: MakeRow,
): MapRow[] {
  const nodeText = (node: string) => (node === '' ? 'not in a pod' : node);
  return groupBy([...names].sort(), nodeOf)
    .sort(([a], [b]) => (a === '' ? 1 : b === '' ? -1 : a < b ? -1 : 1))
    .flatMap(([node, members]) =>
      isGrouped
        ? [
            row(`node ${node}`, {
              label: nodeText(node),
              detail: countText(members.length, 'endpoint'),
            }),
          ]
        : members.map((name, i) =>
            row(`to ${name}`, {
              label: baseName(name),
              detail: index.get(name)?.detail ?? '',
              heading: i === 0 ? nodeText(node) : null,
              isUsable: index.get(name)?.isUsable ?? true,
              target: { kind: 'search', text: name },
            }),
          ),
    );
}

/** Groups in the order of the first members. */
function groupBy<T>(list: readonly T[], keyOf: (one: T) => string): [key: string, members: T[]][] {
  const groups = new Map<string, T[]>();
  for (const one of list) {
    const key = keyOf(one);
    const group = groups.get(key);
    if (group) group.push(one);
    else groups.set(key, [one]);
  }
  return [...groups];
}
