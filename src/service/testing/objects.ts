import type {
  EndpointSliceObject,
  ObjectMeta,
  ServiceObject,
  ServiceSpec,
  SliceEndpoint,
} from '../objects.ts';

/**
 * Returns a Service "default/web" with cluster IP 10.96.0.1, port "http" 80/TCP; `spec` and `metadata`
 * override its fields.
 */
export function webService(
  spec: Partial<ServiceSpec> = {},
  metadata: ObjectMeta = {},
  ingress: readonly { ip?: string; ipMode?: string; hostname?: string }[] = [],
): ServiceObject {
  return {
    metadata: { namespace: 'default', name: 'web', creationTimestamp: '2025-01-01T00:00:00Z', ...metadata },
    spec: {
      type: 'ClusterIP',
      clusterIP: '10.96.0.1',
      clusterIPs: ['10.96.0.1'],
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
      ...spec,
    },
    status: { loadBalancer: { ingress } },
  };
}

/**
 * Returns a slice of "default/web" whose port "http" is 8080. An endpoint is an address followed by words:
 * "@node-2" names its node, "zone=a,b" and "node=x" are hints, "not-ready", "terminating" (still serves),
 * "dead" (terminates and no longer serves) and "dying-ready" (terminates, published all the same) are
 * conditions, "unset" omits the conditions.
 */
export function webSlice(
  endpoints: readonly string[],
  change: Partial<EndpointSliceObject> & { readonly name?: string } = {},
): EndpointSliceObject {
  const { name = 'web-1', ...rest } = change;
  return {
    metadata: { namespace: 'default', name, labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: endpoints.some((text) => text.split(' ')[0]?.includes(':')) ? 'IPv6' : 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: endpoints.map(endpoint),
    ...rest,
  };
}

function endpoint(text: string): SliceEndpoint {
  const [address = '', ...words] = text.split(' ');
  const after = (prefix: string) =>
    words
      .find((word) => word.startsWith(prefix))
      ?.slice(prefix.length)
      .split(',')
      .map((name) => ({ name }));
  const nodeName = words.find((word) => word.startsWith('@'))?.slice(1) ?? null;
  const zones = after('zone=');
  const nodes = after('node=');
  return {
    addresses: [address],
    nodeName,
    conditions: words.includes('unset') ? null : conditions(words),
    hints: { ...(zones ? { forZones: zones } : {}), ...(nodes ? { forNodes: nodes } : {}) },
  };
}

function conditions(words: readonly string[]) {
  if (words.includes('not-ready')) return { ready: false, serving: false, terminating: false };
  if (words.includes('terminating')) return { ready: false, serving: true, terminating: true };
  if (words.includes('dead')) return { ready: false, serving: false, terminating: true };
  if (words.includes('dying-ready')) return { ready: true, serving: true, terminating: true };
  return { ready: true, serving: true, terminating: false };
}
