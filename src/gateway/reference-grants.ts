import { identityOf } from './identity.ts';
import type { GatewayObject } from './objects.ts';
import { list, optionalText, record, text } from './raw.ts';

export const GATEWAY_GROUP = 'gateway.networking.k8s.io';

export interface ReferenceSource {
  readonly kind: 'Gateway' | 'ListenerSet' | 'HTTPRoute' | 'GRPCRoute' | 'TLSRoute' | 'TCPRoute' | 'UDPRoute';
  readonly namespace: string;
}

export interface ReferenceTarget {
  readonly kind: 'Service' | 'Secret' | 'ConfigMap';
  readonly namespace: string;
  readonly name: string;
}

export interface ReferenceGrants {
  /** Reports whether an object may refer to another one: it is of the same namespace, or a grant of the target's namespace says so. */
  allow(from: ReferenceSource, to: ReferenceTarget): boolean;
}

/** Indexes ReferenceGrants. A grant counts only in its own namespace: that of the objects that are referred to. */
export function indexReferenceGrants(grants: readonly GatewayObject[]): ReferenceGrants {
  const allowed = new Set<string>();
  for (const object of grants) {
    const identity = identityOf(object);
    if (!identity) continue;
    const spec = record(object.spec);
    for (const source of list(spec['from'])) {
      const from = record(source);
      if (text(from['group']) !== GATEWAY_GROUP) continue;
      for (const target of list(spec['to'])) {
        const to = record(target);
        if (text(to['group']) !== '') continue;
        const name = optionalText(to['name']) ?? '*';
        allowed.add(
          key(text(from['kind']), text(from['namespace']), text(to['kind']), identity.namespace, name),
        );
      }
    }
  }
  return {
    allow: (from, to) =>
      from.namespace === to.namespace ||
      allowed.has(key(from.kind, from.namespace, to.kind, to.namespace, '*')) ||
      allowed.has(key(from.kind, from.namespace, to.kind, to.namespace, to.name)),
  };
}

const key = (...parts: readonly string[]): string => JSON.stringify(parts);
