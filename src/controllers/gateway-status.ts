import type { FollowedGatewayObjects } from '../gateway/follow-objects.ts';
import { GATEWAY_CONTROLLER, type GatewayObject } from '../gateway/objects.ts';
import { list, record, text } from '../gateway/raw.ts';
import type { ObjectStatus } from '../gateway/statuses.ts';
import { type Client, hasReason } from '../kube/client.ts';
import type { Clock } from '../lib/clock.ts';
import { same } from './canonical.ts';

type Fields = Readonly<Record<string, unknown>>;

/** The list of each kind in the followed objects. */
const LISTS = {
  GatewayClass: 'gatewayClasses',
  Gateway: 'gateways',
  ListenerSet: 'listenerSets',
  HTTPRoute: 'httpRoutes',
  GRPCRoute: 'grpcRoutes',
  TLSRoute: 'tlsRoutes',
  TCPRoute: 'tcpRoutes',
  UDPRoute: 'udpRoutes',
  BackendTLSPolicy: 'backendTlsPolicies',
} as const;

/** Writes the status of an object of the Gateway API, if it is another than it has. */
export async function writeGatewayStatus(
  { client, clock, signal }: { readonly client: Client; readonly clock: Clock; readonly signal: AbortSignal },
  followed: FollowedGatewayObjects,
  wanted: ObjectStatus,
  addresses: ReadonlyMap<string, readonly string[]>,
): Promise<void> {
  const { kind, namespace, name } = wanted;
  const resource = followed.resourceOf(kind);
  const listName = LISTS[kind as keyof typeof LISTS];
  const object = followed
    .objects()
    [listName]?.find(({ metadata }) => metadata?.name === name && (metadata.namespace ?? '') === namespace);
  if (!resource || !object) return;
  const own = kind === 'Gateway' ? (addresses.get(`gateway/${namespace}/${name}`) ?? []) : null;
  const status = mergedStatus(
    object,
    wanted,
    own,
    new Date(clock.now()).toISOString().replace(/\.\d+Z$/, 'Z'),
  );
  if (same(pick(record(object.status), Object.keys(status)), status)) return;
  try {
    const scope = namespace === '' ? {} : { namespace };
    await client.patch(resource, name, 'merge', { status }, { ...scope, subresource: 'status', signal });
  } catch (error) {
    if (!hasReason(error, 'NotFound')) throw error;
  }
}

/** Returns the status to write: with times of transitions, addresses, and the parts of other controllers. */
export function mergedStatus(
  object: GatewayObject,
  { status }: ObjectStatus,
  addresses: readonly string[] | null,
  now: string,
): Fields {
  const current = record(object.status);
  const merged: Record<string, unknown> = { ...status };
  if (addresses !== null) merged['addresses'] = addresses.map((value) => ({ type: 'IPAddress', value }));
  for (const field of ['parents', 'ancestors']) {
    if (!(field in status)) continue;
    const known = list(current[field]).map((item) => record(item));
    const others = known.filter((item) => text(item['controllerName']) !== GATEWAY_CONTROLLER);
    const reference = field === 'parents' ? 'parentRef' : 'ancestorRef';
    const own = list(status[field]).map((item) => {
      const entry = record(item);
      const before = known.find(
        (one) => text(one['controllerName']) === GATEWAY_CONTROLLER && same(one[reference], entry[reference]),
      );
      return withTimes(entry, before, now);
    });
    merged[field] = [...others, ...own];
  }
  if ('listeners' in status) {
    const known = list(current['listeners']).map((item) => record(item));
    merged['listeners'] = list(status['listeners']).map((item) => {
      const entry = record(item);
      return withTimes(
        entry,
        known.find((one) => one['name'] === entry['name']),
        now,
      );
    });
  }
  return withTimes(merged, current, now);
}

/** A condition keeps its time as long as its status is the same. */
function withTimes(entry: Fields, before: Fields | undefined, now: string): Fields {
  if (!('conditions' in entry)) return entry;
  const known = list(before?.['conditions']).map((item) => record(item));
  const conditions = list(entry['conditions']).map((item) => {
    const one = record(item);
    const old = known.find(({ type, status }) => type === one['type'] && status === one['status']);
    return { ...one, lastTransitionTime: text(old?.['lastTransitionTime']) || now };
  });
  return { ...entry, conditions };
}

const pick = (object: Fields, names: readonly string[]): Fields =>
  Object.fromEntries(names.map((name) => [name, object[name]]));
