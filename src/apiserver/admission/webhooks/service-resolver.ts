import { SERVICE_NAME_LABEL } from '../../../kube/well-known-labels.ts';
import { at, listAt, textAt } from '../../object.ts';
import type { ObjectView } from '../../object-view.ts';
import type { ServiceResolver } from '../../service-resolver.ts';

/** Picks a ready endpoint of a Service from its EndpointSlices. `random`: 0 ≤ n < 1. */
export function createServiceResolver(view: ObjectView, random: () => number): ServiceResolver {
  return (namespace, name, port) => {
    const service = view.get('services', `${namespace}/${name}`);
    if (!service) throw new Error(`service ${JSON.stringify(name)} not found`);
    if (textAt(service, 'spec', 'type') === 'ExternalName') {
      return { host: textAt(service, 'spec', 'externalName'), port };
    }
    const servicePort = listAt(service, 'spec', 'ports').find((one) => one['port'] === port);
    if (!servicePort) throw new Error(`no service port ${port} found for service ${JSON.stringify(name)}`);
    const portName = textAt(servicePort, 'name');
    const endpoints = view
      .list('endpointslices.discovery.k8s.io', namespace)
      .filter(({ metadata }) => metadata.labels?.[SERVICE_NAME_LABEL] === name)
      .flatMap((slice) => {
        const target = listAt(slice, 'ports').find((one) => textAt(one, 'name') === portName)?.['port'];
        if (typeof target !== 'number') return [];
        return listAt(slice, 'endpoints')
          .filter((endpoint) => at(endpoint, 'conditions', 'ready') !== false)
          .flatMap((endpoint) => {
            const address = at(endpoint, 'addresses', 0);
            return typeof address === 'string' ? [{ host: address, port: target }] : [];
          });
      });
    const chosen = endpoints[Math.floor(random() * endpoints.length)];
    if (!chosen) throw new Error(`no endpoints available for service ${JSON.stringify(name)}`);
    return chosen;
  };
}
