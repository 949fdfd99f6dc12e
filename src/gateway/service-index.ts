import { identityOf, keyOf } from './identity.ts';
import type { GatewayObject } from './objects.ts';
import { list, portNumber, record, text } from './raw.ts';

export interface ServicePort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
  readonly appProtocol: string;
}

export interface KnownService {
  readonly namespace: string;
  readonly name: string;
  readonly external: boolean;
  readonly ports: readonly ServicePort[];
}

export type ServiceIndex = ReadonlyMap<string, KnownService>;

/** Indexes Services by "NAMESPACE/NAME". */
export function indexServices(services: readonly GatewayObject[]): ServiceIndex {
  const index = new Map<string, KnownService>();
  for (const object of services) {
    const identity = identityOf(object);
    if (!identity) continue;
    const spec = record(object.spec);
    const ports: ServicePort[] = [];
    for (const item of list(spec['ports'])) {
      const value = record(item);
      const port = portNumber(value['port']);
      if (port === null) continue;
      ports.push({
        name: text(value['name']),
        port,
        protocol: text(value['protocol']) || 'TCP',
        appProtocol: text(value['appProtocol']),
      });
    }
    const { namespace, name } = identity;
    index.set(keyOf(identity), { namespace, name, external: spec['type'] === 'ExternalName', ports });
  }
  return index;
}
