import { type ApiObject, at, isObject, listAt, textAt } from '../object.ts';
import { columns, firstThree, labelsText, type Printer, selectorText, since } from './printer.ts';

export const servicePrinter: Printer = {
  columns: columns('Name; Type; Cluster-IP; External-IP; Port(s); Age; Selector|'),
  cells: (service, now) => [
    service.metadata.name,
    textAt(service, 'spec', 'type'),
    texts(at(service, 'spec', 'clusterIPs'))[0] || textAt(service, 'spec', 'clusterIP') || '<none>',
    externalAddresses(service),
    listAt(service, 'spec', 'ports')
      .map((port) => `${port['port']}${port['nodePort'] ? `:${port['nodePort']}` : ''}/${port['protocol']}`)
      .join(',') || '<none>',
    since(service.metadata.creationTimestamp, now),
    labelsText(at(service, 'spec', 'selector')),
  ],
};

function externalAddresses(service: ApiObject): string {
  const given = texts(at(service, 'spec', 'externalIPs'));
  switch (textAt(service, 'spec', 'type')) {
    case 'ClusterIP':
    case 'NodePort':
      return given.join(',') || '<none>';
    case 'LoadBalancer':
      return [...balancerAddresses(service), ...given].join(',') || '<pending>';
    case 'ExternalName':
      return textAt(service, 'spec', 'externalName');
    default:
      return '<unknown>';
  }
}

function balancerAddresses(object: ApiObject): string[] {
  const addresses = listAt(object, 'status', 'loadBalancer', 'ingress').map(
    (ingress) => textAt(ingress, 'ip') || textAt(ingress, 'hostname'),
  );
  return [...new Set(addresses.filter((address) => address !== ''))].sort();
}

export const endpointSlicePrinter: Printer = {
  columns: columns('Name; AddressType; Ports; Endpoints; Age'),
  cells: (slice, now) => [
    slice.metadata.name,
    textAt(slice, 'addressType'),
    firstThree(listAt(slice, 'ports').map((port) => String(port['port'] ?? port['name'] ?? '*'))) ||
      '<unset>',
    firstThree(listAt(slice, 'endpoints').flatMap((endpoint) => texts(endpoint['addresses']))) || '<unset>',
    since(slice.metadata.creationTimestamp, now),
  ],
};

export const endpointsPrinter: Printer = {
  columns: columns('Name; Endpoints; Age'),
  cells: (endpoints, now) => [
    endpoints.metadata.name,
    firstThree(
      listAt(endpoints, 'subsets').flatMap((subset) => {
        const addresses = listAt(subset, 'addresses').map((address) => textAt(address, 'ip'));
        const ports = listAt(subset, 'ports');
        // A headless Service may have no ports.
        return ports.length === 0
          ? addresses
          : ports.flatMap((port) =>
              addresses.map((ip) => `${ip.includes(':') ? `[${ip}]` : ip}:${port['port']}`),
            );
      }),
    ) || '<none>',
    since(endpoints.metadata.creationTimestamp, now),
  ],
};

export const ingressPrinter: Printer = {
  columns: columns('Name; Class; Hosts; Address; Ports; Age'),
  cells: (ingress, now) => [
    ingress.metadata.name,
    textAt(ingress, 'spec', 'ingressClassName') || '<none>',
    firstThree(
      listAt(ingress, 'spec', 'rules')
        .map((rule) => textAt(rule, 'host'))
        .filter((host) => host !== ''),
    ) || '*',
    balancerAddresses(ingress).join(','),
    listAt(ingress, 'spec', 'tls').length > 0 ? '80, 443' : '80',
    since(ingress.metadata.creationTimestamp, now),
  ],
};

export const ingressClassPrinter: Printer = {
  columns: columns('Name; Controller; Parameters; Age'),
  cells(ingressClass, now) {
    const parameters = at(ingressClass, 'spec', 'parameters');
    const group = textAt(parameters, 'apiGroup');
    return [
      ingressClass.metadata.name,
      textAt(ingressClass, 'spec', 'controller'),
      isObject(parameters)
        ? `${parameters['kind']}${group ? `.${group}` : ''}/${parameters['name']}`
        : '<none>',
      since(ingressClass.metadata.creationTimestamp, now),
    ];
  },
};

export const networkPolicyPrinter: Printer = {
  columns: columns('Name; Pod-Selector; Age'),
  cells: (policy, now) => [
    policy.metadata.name,
    selectorText(at(policy, 'spec', 'podSelector')),
    since(policy.metadata.creationTimestamp, now),
  ],
};

export const serviceCidrPrinter: Printer = {
  columns: columns('Name; CIDRs; Age'),
  cells: (cidr, now) => [
    cidr.metadata.name,
    texts(at(cidr, 'spec', 'cidrs')).join(','),
    since(cidr.metadata.creationTimestamp, now),
  ],
};

export const ipAddressPrinter: Printer = {
  columns: columns('Name; ParentRef; Age'),
  cells(address, now) {
    const parent = at(address, 'spec', 'parentRef');
    const group = textAt(parent, 'group');
    const resource = textAt(parent, 'resource') + (group ? `.${group}` : '');
    const place = [resource, textAt(parent, 'namespace'), textAt(parent, 'name')];
    return [
      address.metadata.name,
      place.filter((part) => part !== '').join('/') || '<none>',
      since(address.metadata.creationTimestamp, now),
    ];
  },
};

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
}
