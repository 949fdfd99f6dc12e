import type { EndpointSlice, Pod, Service, ServicePort } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import { closestName } from '../lib/closest-name.ts';
import type { PortRef } from '../service/model.ts';
import { nameOf } from './explain-places.ts';
import type { ExplainView } from './explain-view.ts';
import type { Cause } from './explanation.ts';

/** Determines why a Service has no endpoint for a port, from its selector and pods to their EndpointSlices. */
export function noEndpoints(view: ExplainView, service: Service, port: PortRef, family: IPFamily): Cause[] {
  const object = `Service ${nameOf(service)}`;
  const selector = Object.entries(service.spec?.selector ?? {});
  const slices = [...view.slices()].filter(
    ({ metadata }) =>
      metadata?.namespace === port.namespace && metadata.labels?.[SERVICE_NAME_LABEL] === port.name,
  );
  if (selector.length === 0) {
    return [
      {
        text: `${object} has no selector and no EndpointSlice with a ready ${FAMILY_NAMES[family]} endpoint for it`,
        object,
        field: 'spec.selector',
        fix: 'set a selector, or create EndpointSlices',
      },
    ];
  }
  const inNamespace = [...view.pods()].filter(({ metadata }) => metadata?.namespace === port.namespace);
  const selected = inNamespace.filter(({ metadata }) =>
    selector.every(([key, value]) => metadata?.labels?.[key] === value),
  );
  const selectorText = selector.map(([key, value]) => `${key}=${value}`).join(',');
  if (selected.length === 0)
    return [nothingSelected(object, port.namespace, selectorText, selector, inNamespace)];
  const ready = selected.filter(isReady);
  if (ready.length === 0) {
    const waiting = selected.slice(0, 3).map(whyNotReady);
    return selected.length > 3
      ? [
          ...waiting,
          { text: `${selected.length - 3} more pods are not ready`, object, field: null, fix: null },
        ]
      : waiting;
  }
  const servicePort = service.spec?.ports?.find(({ name = '' }) => name === port.portName);
  const unnamed = servicePort && ready.map((pod) => missingTargetPort(service, servicePort, pod));
  const missing = unnamed?.find((cause) => cause !== null);
  return [missing ?? otherFamily(object, slices, family, ready)];
}

function nothingSelected(
  object: string,
  namespace: string,
  selectorText: string,
  selector: readonly (readonly [string, string])[],
  pods: readonly Pod[],
): Cause {
  const base = { object, field: 'spec.selector' };
  const text = `selector ${selectorText} matches 0 pods in namespace ${namespace}`;
  const near = nearestPod(selector, pods);
  if (!near) return { ...base, text, fix: 'start pods with these labels, or correct the selector' };
  const { key, value, pod } = near;
  return {
    ...base,
    text: `${text}; closest: ${key}=${value} on pod ${nameOf(pod)}`,
    fix: `set spec.selector.${key} to ${value}, or label the pods ${selectorText}`,
  };
}

/**
 * Returns the pod that is closest to matching the selector: with the fewest differing labels, then the most similar
 * value.
 */
function nearestPod(
  selector: readonly (readonly [string, string])[],
  pods: readonly Pod[],
): { key: string; value: string; pod: Pod } | null {
  let best: { key: string; value: string; pod: Pod; misses: number } | null = null;
  for (const pod of pods) {
    const labels = pod.metadata?.labels ?? {};
    const misses = selector.filter(([key, value]) => labels[key] !== value);
    const [key = '', wanted = ''] = misses[0] ?? [];
    const value = labels[key];
    if (value === undefined || closestName(wanted, [value]) === null) continue;
    if (!best || misses.length < best.misses) best = { key, value, pod, misses: misses.length };
  }
  return best;
}

function isReady({ status }: Pod): boolean {
  return status?.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True') ?? false;
}

function whyNotReady(pod: Pod): Cause {
  const object = `Pod ${nameOf(pod)}`;
  const { spec, status, metadata } = pod;
  if (metadata?.deletionTimestamp) {
    return {
      text: `${object} is terminating`,
      object,
      field: 'metadata.deletionTimestamp',
      fix: 'wait for its successor',
    };
  }
  for (const container of status?.containerStatuses ?? []) {
    const { waiting, terminated } = container.state ?? {};
    const stop = waiting?.reason ?? terminated?.reason;
    if (stop && stop !== 'ContainerCreating' && stop !== 'PodInitializing') {
      return {
        text: `${object}: container ${container.name} is ${stop}${waiting?.message ? `: ${waiting.message}` : ''}`,
        object,
        field: 'status.containerStatuses',
        fix: `kubectl -n ${metadata?.namespace} logs ${metadata?.name} -c ${container.name} --previous`,
      };
    }
  }
  const unready = status?.containerStatuses?.find(({ ready, state }) => !ready && state?.running)?.name;
  const at = spec?.containers.findIndex(({ name }) => name === unready) ?? -1;
  const probe = spec?.containers[at]?.readinessProbe;
  if (probe) {
    return {
      text: `${object} is not ready: readiness probe of container ${unready} (${probeText(probe)}) has not succeeded`,
      object,
      field: `spec.containers[${at}].readinessProbe`,
      fix: 'make the container answer the probe, or correct the probe',
    };
  }
  const gate = status?.conditions?.find(({ type, status: value }) => type === 'Ready' && value !== 'True');
  const said = gate?.message ?? gate?.reason;
  return {
    text: `${object} is not ready: phase ${status?.phase ?? 'unknown'}${said ? `, ${said}` : ''}`,
    object,
    field: 'status.conditions',
    fix: `kubectl -n ${metadata?.namespace} describe pod ${metadata?.name}`,
  };
}

function probeText(
  probe: NonNullable<NonNullable<Pod['spec']>['containers'][number]['readinessProbe']>,
): string {
  if (probe.httpGet) return `httpGet :${probe.httpGet.port}${probe.httpGet.path ?? '/'}`;
  if (probe.tcpSocket) return `tcpSocket :${probe.tcpSocket.port}`;
  if (probe.exec) return `exec ${probe.exec.command?.join(' ') ?? ''}`;
  return 'grpc';
}

function missingTargetPort(service: Service, port: ServicePort, pod: Pod): Cause | null {
  const { targetPort, protocol = 'TCP' } = port;
  if (typeof targetPort !== 'string') return null;
  const named = (pod.spec?.containers ?? []).flatMap(({ ports }) => ports ?? []);
  if (named.some((entry) => entry.name === targetPort && (entry.protocol ?? 'TCP') === protocol)) return null;
  const known = named.flatMap(({ name, containerPort }) => (name ? `${name} (${containerPort})` : []));
  const at = service.spec?.ports?.indexOf(port) ?? 0;
  return {
    text: `targetPort ${targetPort} is not a ${protocol} port name in pod ${nameOf(pod)}: ${known.join(', ') || 'it has none'}`,
    object: `Service ${nameOf(service)}`,
    field: `spec.ports[${at}].targetPort`,
    fix: 'use the name of a container port, or its number',
  };
}

function otherFamily(
  object: string,
  slices: readonly EndpointSlice[],
  family: IPFamily,
  ready: readonly Pod[],
): Cause {
  const others = slices.filter(({ addressType, endpoints }) => {
    return addressType !== FAMILY_NAMES[family] && (endpoints?.length ?? 0) > 0;
  });
  if (others.length > 0 && !slices.some(({ addressType }) => addressType === FAMILY_NAMES[family])) {
    const label = FAMILY_NAMES[family];
    return {
      text: `pods of ${object} have no ${label} address`,
      object,
      field: 'spec.ipFamilies',
      fix: `connect over ${others[0]?.addressType}, or give the pods ${label} addresses`,
    };
  }
  return {
    text: `${ready.length} pods are ready, but no EndpointSlice lists them with this port yet`,
    object,
    field: 'EndpointSlice endpoints',
    fix: 'wait a moment; if it persists, check that the EndpointSlice controller is running',
  };
}
