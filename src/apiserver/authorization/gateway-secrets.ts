import { DEFAULT_INGRESS_CLASS_ANNOTATION } from '../../kube/well-known-labels.ts';
import { type ApiObject, listAt, textAt } from '../object.ts';
import type { GraphSource } from './node-graph.ts';

const INGRESSES = 'ingresses.networking.k8s.io';
const CLASSES = 'ingressclasses.networking.k8s.io';
const LEGACY_CLASS_ANNOTATION = 'kubernetes.io/ingress.class';

/** The Secrets that Ingresses refer to, of which every node's gateway needs the certificates. */
export interface GatewaySecrets {
  /** Reports whether an Ingress of a class of this controller refers to a Secret ("namespace/name"). */
  refers(key: string): boolean;
  close(): void;
}

/** Indexes the references of Ingresses, and updates the index when Ingresses change. */
export function createGatewaySecrets(source: GraphSource, controller: string): GatewaySecrets {
  /** Secret → keys of the Ingresses. */
  const users = new Map<string, Set<string>>();
  const keyOf = ({ metadata }: ApiObject) => `${metadata.namespace ?? ''}/${metadata.name}`;
  const change = (ingress: ApiObject | null, isThere: boolean) => {
    if (ingress === null) return;
    const ingressKey = keyOf(ingress);
    for (const item of listAt(ingress, 'spec', 'tls')) {
      const name = textAt(item, 'secretName');
      if (name === '') continue;
      const secret = `${ingress.metadata.namespace ?? ''}/${name}`;
      const known = users.get(secret) ?? new Set<string>();
      if (isThere) known.add(ingressKey);
      else known.delete(ingressKey);
      if (known.size > 0) users.set(secret, known);
      else users.delete(secret);
    }
  };
  for (const ingress of source.list(INGRESSES)) change(ingress, true);
  const close = source.listen(INGRESSES, (before, after) => {
    change(before, false);
    change(after, true);
  });
  const isOwnClass = (name: string): boolean =>
    textAt(source.get(CLASSES, `/${name}`), 'spec', 'controller') === controller;
  const isOwn = (ingress: ApiObject): boolean => {
    const name =
      textAt(ingress, 'spec', 'ingressClassName') || (ingress.metadata.annotations?.[LEGACY_CLASS_ANNOTATION] ?? '');
    if (name !== '') return isOwnClass(name);
    return source
      .list(CLASSES)
      .some(
        ({ metadata }) =>
          metadata.annotations?.[DEFAULT_INGRESS_CLASS_ANNOTATION] === 'true' && isOwnClass(metadata.name ?? ''),
      );
  };
  return {
    refers: (secret) =>
      [...(users.get(secret) ?? [])].some((key) => {
        const ingress = source.get(INGRESSES, key);
        return ingress !== undefined && isOwn(ingress);
      }),
    close,
  };
}
