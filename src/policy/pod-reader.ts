import type { Pod } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import type { NamedPort, PolicyPod, Protocol } from './model.ts';

/**
 * Reads a pod; returns null if policies do not apply to it: it uses its node's network, or has ended and
 * released its addresses. A pod being deleted counts until it has ended. `plugged`: the addresses that the
 * node assigned to it, which its status may not contain yet.
 */
export function readPod(object: Pod, plugged: readonly string[] | null = null): PolicyPod | null {
  const { metadata, spec, status } = object;
  if (spec?.hostNetwork) return null;
  const hasEnded = status?.phase === 'Succeeded' || status?.phase === 'Failed';
  if (hasEnded && !plugged) return null;
  const reported = (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
  const addresses = (plugged ?? reported).flatMap((ip) => canonicalAddress(ip) ?? []);
  if (addresses.length === 0) return null;
  return {
    key: keyOf(object),
    namespace: metadata?.namespace ?? '',
    labels: metadata?.labels ?? {},
    node: spec?.nodeName ?? '',
    addresses,
    ports: [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])].flatMap(({ ports = [] }) =>
      ports.flatMap(({ name, protocol = 'TCP', containerPort }): NamedPort[] =>
        name && containerPort !== undefined && isProtocol(protocol)
          ? [{ name, protocol, port: containerPort }]
          : [],
      ),
    ),
  };
}

const isProtocol = (text: string): text is Protocol => text === 'TCP' || text === 'UDP' || text === 'SCTP';

/** Drops fields that policies do not use before an informer stores a pod. */
export function trimPod({ metadata, spec, status }: Pod): Pod {
  const { name, namespace, uid, resourceVersion, labels } = metadata ?? {};
  const containers = (list: NonNullable<Pod['spec']>['containers'] | undefined) =>
    (list ?? []).flatMap(({ name, ports }) => {
      const named = (ports ?? []).filter((port) => port.name);
      return named.length > 0 ? [{ name, ports: named }] : [];
    });
  return {
    metadata: {
      ...(name === undefined ? {} : { name }),
      ...(namespace === undefined ? {} : { namespace }),
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
      ...(labels === undefined ? {} : { labels }),
    },
    spec: {
      containers: containers(spec?.containers),
      initContainers: containers(spec?.initContainers),
      ...(spec?.nodeName === undefined ? {} : { nodeName: spec.nodeName }),
      ...(spec?.hostNetwork === undefined ? {} : { hostNetwork: spec.hostNetwork }),
    },
    status: {
      ...(status?.phase === undefined ? {} : { phase: status.phase }),
      ...(status?.podIPs === undefined ? {} : { podIPs: status.podIPs }),
    },
  };
}
