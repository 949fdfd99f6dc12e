import { INGRESSES } from '../gateway/follow-objects.ts';
import { GATEWAY_NAMESPACE, serviceNameOf } from '../gateway/gateway-service.ts';
import { classOf, ownIngressClasses } from '../gateway/ingress-class.ts';
import type { GatewayObject } from '../gateway/objects.ts';
import { list, record, text } from '../gateway/raw.ts';
import { findProgram } from '../kernel/program-path.ts';
import type { Client } from '../kube/client.ts';
import type { EndpointSlice, KubeObject, Resource } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { type Problem, problem } from './problem.ts';

/** An Ingress of our classes as `status` shows it. */
export interface IngressFacts {
  readonly namespace: string;
  readonly name: string;
  readonly class: string;
  /** "*": every host. */
  readonly hosts: readonly string[];
  readonly addresses: readonly string[];
}

const CLASSES: Resource<KubeObject> = {
  ...INGRESSES,
  plural: 'ingressclasses',
  kind: 'IngressClass',
  namespaced: false,
};

/** Lists the Ingresses that this cluster's gateways serve. */
export async function readIngresses(client: Client): Promise<readonly IngressFacts[]> {
  const { items: ingresses } = await client.list(INGRESSES);
  if (ingresses.length === 0) return [];
  const { items: classes } = await client.list(CLASSES);
  const own = ownIngressClasses(classes as readonly GatewayObject[]);
  return (ingresses as readonly GatewayObject[]).flatMap((ingress) => {
    const name = classOf(ingress, own);
    if (name === null) return [];
    const hosts = list(record(ingress.spec)['rules']).map((rule) => text(record(rule)['host']) || '*');
    const addresses = list(record(record(ingress.status)['loadBalancer'])['ingress']).map((one) =>
      text(record(one)['ip']),
    );
    return [
      {
        namespace: ingress.metadata?.namespace ?? '',
        name: ingress.metadata?.name ?? '',
        class: name,
        hosts: [...new Set(hosts.length === 0 ? ['*'] : hosts)],
        addresses,
      },
    ];
  });
}

/** Returns why Ingresses do not answer: no address, or no node whose proxy does. */
export function ingressProblems(
  ingresses: readonly IngressFacts[],
  slices: readonly EndpointSlice[],
): readonly Problem[] {
  return ingresses.flatMap(({ namespace, name, class: className, addresses }) => {
    const service = serviceNameOf(`ingress/${className}`);
    const isAnswered = slices.some(
      ({ metadata, endpoints }) =>
        metadata?.namespace === GATEWAY_NAMESPACE &&
        (metadata.labels as Record<string, string> | undefined)?.[SERVICE_NAME_LABEL] === service &&
        (endpoints ?? []).length > 0,
    );
    const title = `Ingress ${namespace}/${name}`;
    const cause = !isAnswered
      ? findProgram('haproxy', ['/usr/sbin']) === null
        ? 'HAProxy is not installed on this machine: apt install haproxy'
        : 'the proxy of no node answers yet: see the events of the nodes'
      : addresses.length === 0
        ? `it has no address yet; see: kubectl -n ${GATEWAY_NAMESPACE} describe service ${service}`
        : null;
    return cause === null ? [] : [problem('ingress-not-answered', title, `${title}: ${cause}`)];
  });
}
