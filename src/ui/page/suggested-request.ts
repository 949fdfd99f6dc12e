import type { ServiceView } from '../view.ts';

/** The API server's own Service, which answers no requests without a certificate. */
const API_SERVICE = 'default/kubernetes';
const HTTP_PORT = 80;

/** Traffic that the user can send to a Service. `url`: of HTTP; null: only a packet can be sent, to `target` of `trace`. */
export interface SuggestedTraffic {
  readonly url: string | null;
  readonly target: string;
}

/**
 * Suggests a Service to send traffic to: the chosen one if it can answer, else the first that answers HTTP, else the first that
 * answers TCP. Null: none can. Requests to it by its name also ask the cluster's DNS.
 */
export function suggestTraffic(
  services: Iterable<ServiceView>,
  chosen: string | null,
): SuggestedTraffic | null {
  const found = [...services].flatMap((service) => {
    const traffic = trafficTo(service);
    return traffic === null ? [] : [{ name: service.name, traffic }];
  });
  const best =
    found.find(({ name }) => name === chosen) ??
    found.find(({ traffic }) => traffic.url !== null) ??
    found[0];
  return best?.traffic ?? null;
}

function trafficTo({ name, type, ports, httpPorts, endpoints }: ServiceView): SuggestedTraffic | null {
  if (name === API_SERVICE || type === 'ExternalName' || endpoints.length === 0) return null;
  const numbers = ports.flatMap((text) => Number(/^(\d+)(?::\d+)?\/TCP$/.exec(text)?.[1] ?? 0) || []);
  const http = httpPorts.includes(HTTP_PORT) ? HTTP_PORT : httpPorts[0];
  const port = http ?? numbers[0];
  if (port === undefined) return null;
  const [namespace, service] = name.split('/');
  return {
    url: http === undefined ? null : `http://${service}.${namespace}${http === HTTP_PORT ? '' : `:${http}`}`,
    target: `svc/${name}:${port}`,
  };
}
