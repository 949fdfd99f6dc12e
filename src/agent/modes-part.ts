import type { Service } from '../kube/types.ts';
import type { SocketAddress } from '../lib/address.ts';
import { closestName } from '../lib/closest-name.ts';
import { FairleadError } from '../lib/errors.ts';
import { compareModes, type ModeComparison } from '../modes/comparison.ts';
import type { ControlSources } from './control-sources.ts';
import { modeObstacles } from './mode-support.ts';

/** The body of POST /modes. */
export interface ModesRequest {
  readonly namespace: string;
  readonly name: string;
}

/** Compares the modes for a Service by this node's forwarding table. Throws FairleadError if it has no address there. */
export async function answerModes(
  { part, services }: ControlSources,
  { namespace, name }: Partial<ModesRequest>,
): Promise<ModeComparison> {
  if (!namespace || !name) throw refusal('namespace and name are needed');
  const { proxy } = part;
  const obstacles = modeObstacles();
  const drifts = await proxy.drifts();
  // Read after every wait: the next commit changes the map.
  const { map, dataplane } = proxy;
  if (!map) throw refusal('nothing is programmed yet');
  const listeners = new Map(listenersOf(dataplane).map(({ pool, at }) => [pool, at]));
  const comparison = compareModes({
    map,
    namespace,
    name,
    inUse: part.mode,
    nodeIn: part.nodeIn,
    listenerOf: (pool) => listeners.get(pool) ?? null,
    unavailable: obstacles,
    drifts: drifts.map(({ object, kind }) => `${object}: ${kind}`),
  });
  if (comparison) return comparison;
  throw notRendered(services.list(), map.node.ownServiceAddresses, namespace, name);
}

function listenersOf(dataplane: object): readonly { readonly pool: string; readonly at: SocketAddress }[] {
  return 'listeners' in dataplane && typeof dataplane.listeners === 'function' ? dataplane.listeners() : [];
}

/** Returns the reason why the forwarding table has no address of a Service. */
function notRendered(
  services: readonly Service[],
  ownAddresses: readonly string[],
  namespace: string,
  name: string,
): FairleadError {
  const found = services.find(({ metadata }) => metadata?.namespace === namespace && metadata.name === name);
  if (found?.spec?.type === 'ExternalName')
    return refusal(`${namespace}/${name} is a DNS name only (ExternalName): no mode has rules for it`);
  if (found?.spec?.clusterIP === 'None')
    return refusal(`${namespace}/${name} has no address (headless): clients connect to its pods themselves`);
  if (found?.spec?.clusterIP !== undefined && ownAddresses.includes(found.spec.clusterIP))
    return refusal(`${namespace}/${name} is answered by this node itself: no mode has rules for it`);
  if (found) return refusal(`${namespace}/${name} has no address in the forwarding table of this node`);
  const names = services.map(({ metadata }) => `${metadata?.namespace}/${metadata?.name}`);
  const other = names.find((one) => one.endsWith(`/${name}`)) ?? closestName(`${namespace}/${name}`, names);
  return refusal(`no such Service: ${namespace}/${name}`, other ? `did you mean svc/${other}?` : undefined);
}

const refusal = (message: string, hint?: string) =>
  new FairleadError(message, {
    op: 'compare modes',
    code: 'bad-request',
    ...(hint === undefined ? {} : { hint }),
  });
