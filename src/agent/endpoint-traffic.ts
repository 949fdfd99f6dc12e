import type { Informer } from '../kube/informer.ts';
import { isLater } from '../kube/resource-version.ts';
import type { EndpointSlice } from '../kube/types.ts';
import { MANAGED_BY_LABEL } from '../kube/well-known-labels.ts';
import type { Clock } from '../lib/clock.ts';
import type { Traffic } from '../runtime/traffic-end.ts';
import { NOT_PROXIED } from './informer-transforms.ts';
import type { ProgrammedNodes } from './programmed-nodes.ts';

export interface EndpointTrafficOptions {
  readonly slices: Pick<Informer<EndpointSlice>, 'list'>;
  readonly nodes: ProgrammedNodes;
  readonly clock: Clock;
}

const CONTROLLER = 'endpointslice-controller.k8s.io';
/** How long the version is kept at which a pod was found to be leaving; no pod is waited for that long. */
const KEEP_MS = 60_000;

/**
 * Returns a function that tells which traffic Services send to the addresses of a pod. The first version of the slices at
 * which it was leaving is the one to be programmed: the slices of a Service may change again and again.
 */
export function createEndpointTraffic(
  options: EndpointTrafficOptions,
): (addresses: readonly string[]) => Traffic {
  const { slices, nodes, clock } = options;
  const leaving = new Map<string, { readonly version: string; readonly since: number }>();

  function versionOf(key: string, latest: string): string {
    const now = clock.now();
    for (const [one, { since }] of leaving) if (now - since > KEEP_MS) leaving.delete(one);
    const entry = leaving.get(key) ?? { version: latest, since: now };
    leaving.set(key, entry);
    return entry.version;
  }

  return (addresses) => {
    const key = addresses.join();
    const { state, version } = listed(slices.list(), addresses);
    if (state !== 'leaving') {
      leaving.delete(key);
      return state;
    }
    if (!nodes.have(versionOf(key, version))) return 'programming';
    leaving.delete(key);
    return 'ending';
  };
}

interface Listed {
  readonly state: 'new' | 'kept' | 'leaving' | 'none';
  /** The latest version of the slices by which proxies stop to send it new connections. */
  readonly version: string;
}

/** Returns what slices say about the addresses of a pod. */
function listed(slices: readonly EndpointSlice[], addresses: readonly string[]): Listed {
  let state: Listed['state'] = 'none';
  let version = '';
  for (const { endpoints, metadata } of slices) {
    const labels = (metadata?.labels ?? {}) as Readonly<Record<string, unknown>>;
    for (const { addresses: found, conditions } of endpoints ?? []) {
      if (!found.some((address) => addresses.includes(address))) continue;
      if (conditions?.ready !== false && conditions?.terminating !== true) {
        if (labels[MANAGED_BY_LABEL] === CONTROLLER) return { state: 'new', version: '' };
        state = 'kept';
      } else if (state === 'none') state = 'leaving';
      const isProxied = !NOT_PROXIED.some((label) => label in labels);
      const own = metadata?.resourceVersion ?? '';
      if (isProxied && (version === '' || isLater(own, version))) version = own;
    }
  }
  return { state, version };
}
