import type { ServiceView } from '../view.ts';

/** The API server's own Service, which answers no requests without a certificate. */
const API_SERVICE = 'default/kubernetes';
const HTTP_PORT = '80';

/**
 * Returns the URL of a Service to send requests to: the chosen one if it can answer, else the first that can. Null: none can. Requests
 * to it by its name also ask the cluster's DNS.
 */
export function suggestedUrl(services: Iterable<ServiceView>, chosen: string | null): string | null {
  let first: string | null = null;
  for (const service of services) {
    const url = urlOf(service);
    if (url === null) continue;
    if (service.name === chosen) return url;
    first ??= url;
  }
  return first;
}

function urlOf({ name, type, ports, endpoints }: ServiceView): string | null {
  if (name === API_SERVICE || type === 'ExternalName' || endpoints.length === 0) return null;
  const numbers = ports.flatMap((text) => /^(\d+)(?::\d+)?\/TCP$/.exec(text)?.[1] ?? []);
  const port = numbers.includes(HTTP_PORT) ? HTTP_PORT : numbers[0];
  if (port === undefined) return null;
  const [namespace, service] = name.split('/');
  return `http://${service}.${namespace}${port === HTTP_PORT ? '' : `:${port}`}`;
}
