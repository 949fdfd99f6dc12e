import { attach } from '../gateway/attach.ts';
import type { GatewayFinding } from '../gateway/findings.ts';
import { followGatewayObjects, INGRESSES } from '../gateway/follow-objects.ts';
import { followReferences } from '../gateway/follow-references.ts';
import {
  GATEWAY_NAMESPACE,
  gatewayOf,
  plannedService,
  plannedSlices,
  READY_PORTS_ANNOTATION,
  serviceNameOf,
  usedNodePorts,
} from '../gateway/gateway-service.ts';
import { classOf, ownIngressClasses } from '../gateway/ingress-class.ts';
import { GATEWAY_CONTROLLER, type GatewayObjects } from '../gateway/objects.ts';
import { findReferences, withFallback } from '../gateway/references.ts';
import type { GatewayPlan } from '../gateway/route-map.ts';
import { hasReason } from '../kube/client.ts';
import { ingressAddresses } from '../kube/load-balancer.ts';
import type { EndpointSlice, KubeObject, Node, Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { same } from './canonical.ts';
import { all, type ContextWith, controllerQueue, recorderFor } from './context.ts';
import { writeGatewayStatus } from './gateway-status.ts';

export type GatewayControllerContext = ContextWith<'services' | 'nodes' | 'namespaces' | 'endpointSlices'>;

/** The only key of the queue: gateways share ports, and an Ingress concerns all of its class. */
const ALL = 'all';

interface Status {
  loadBalancer?: { ingress?: { ip?: string }[] };
}

/**
 * Keeps, for each gateway, a Service and EndpointSlices of the nodes whose proxies answer, and writes the addresses of the Service
 * to the status of the objects. Without an Ingress of our classes it writes nothing.
 */
export function startGateways(context: GatewayControllerContext): void {
  const { client, caches, signal } = context;
  const { services, nodes, namespaces, endpointSlices } = caches;
  const events = recorderFor(context, 'fairlead-gateways');
  const queue = controllerQueue(context, 'gateways', reconcile, 1);
  const schedule = () => queue.add(ALL);
  const followed = followGatewayObjects({ ...context, services: services.informer, onChange: schedule });
  const references = followReferences({ ...context, onChange: schedule });
  const reported = new Set<string>();

  const ofGateway = (service: Service) => {
    if (gatewayOf(service) !== null) schedule();
  };
  services.informer.handle({ onAdd: ofGateway, onUpdate: ofGateway, onDelete: ofGateway });
  nodes.informer.handle({
    onAdd: schedule,
    onDelete: schedule,
    onUpdate(node, before) {
      if (!same(relevant(node), relevant(before))) schedule();
    },
  });
  const ofSlice = (slice: EndpointSlice) => {
    if (slice.metadata?.namespace === GATEWAY_NAMESPACE) schedule();
  };
  endpointSlices.informer.handle({ onUpdate: ofSlice, onDelete: ofSlice });

  async function reconcile(): Promise<void> {
    await followed.synced;
    const objects = followed.objects();
    const own = services.inNamespace(GATEWAY_NAMESPACE).filter((one) => gatewayOf(one) !== null);
    if (
      objects.ingresses.length + objects.gatewayClasses.length + own.length === 0 &&
      !followed.resourceOf('GatewayClass')
    )
      return;
    await ensureClass(objects);
    references.follow(findReferences(objects));
    await references.known();
    const addresses = new Map(own.map((service) => [gatewayOf(service) ?? '', ingressAddresses(service)]));
    const known = {
      ...objects,
      addresses,
      certificates: problemsOf(references.certificates),
      authorities: problemsOf(references.authorities),
    };
    const attached = attach(known);
    const { gateways } = attach({ ...known, certificates: withFallback(known) }).routeMap;
    report(attached.findings);
    // What fails for one gateway must not withhold anything from the others.
    const written = writeServices(gateways, own).finally(writeSlices);
    const statuses = attached.statuses.map((status) =>
      writeGatewayStatus(context, followed, status, addresses),
    );
    await all([written, writeStatuses(objects), ...statuses]);
  }

  /** Creates the class of the Gateway API, once its definition is there, unless there is one of this controller. */
  async function ensureClass({ gatewayClasses }: GatewayObjects): Promise<void> {
    const resource = followed.resourceOf('GatewayClass');
    const isOwn = ({ spec }: GatewayObjects['gatewayClasses'][number]) =>
      (spec as { controllerName?: unknown } | undefined)?.controllerName === GATEWAY_CONTROLLER;
    if (!resource || gatewayClasses.some(isOwn)) return;
    const object = { metadata: { name: 'fairlead' }, spec: { controllerName: GATEWAY_CONTROLLER } };
    try {
      await client.create(resource, object as KubeObject, { signal });
    } catch (error) {
      if (!hasReason(error, 'AlreadyExists')) throw error;
    }
  }

  async function writeServices(gateways: readonly GatewayPlan[], own: readonly Service[]): Promise<void> {
    // A Service has at least one port.
    const plans = gateways.filter(isForwarded);
    const used = usedNodePorts(own);
    const wanted = new Set(plans.map(({ key }) => serviceNameOf(key)));
    if (plans.length > 0 && !namespaces.get(undefined, GATEWAY_NAMESPACE))
      await namespaces.create({ metadata: { name: GATEWAY_NAMESPACE } });
    const planned = plans.map((plan) => {
      const existing = services.get(GATEWAY_NAMESPACE, serviceNameOf(plan.key));
      return { existing, service: plannedService(plan, existing, used) };
    });
    await all([
      ...planned.map(async ({ existing, service }) => {
        if (!existing) await services.create(service);
        else if (!same(existing.spec, service.spec) || !same(existing.metadata, service.metadata))
          await services.update(service);
      }),
      ...own
        .filter((service) => !wanted.has(service.metadata?.name ?? '') && !services.isDeleting(service))
        .map((service) => services.delete(service)),
    ]);
  }

  async function writeSlices(): Promise<void> {
    const live = services
      .inNamespace(GATEWAY_NAMESPACE)
      .filter((one) => gatewayOf(one) !== null && !services.isDeleting(one));
    const planned = live.flatMap((service) => plannedSlices(service, nodes.informer.list()));
    const names = new Set(planned.map(({ metadata }) => metadata?.name));
    const existing = endpointSlices.inNamespace(GATEWAY_NAMESPACE);
    const stale = existing.filter(({ metadata }) => !names.has(metadata?.name));
    await all([
      ...planned.map((slice) => writeSlice(slice)),
      ...stale
        .filter((slice) => isOfGateway(slice, live) && !endpointSlices.isDeleting(slice))
        .map((slice) => endpointSlices.delete(slice)),
    ]);
  }

  async function writeSlice(slice: EndpointSlice): Promise<void> {
    const existing = endpointSlices.get(GATEWAY_NAMESPACE, slice.metadata?.name ?? '');
    if (!existing) await endpointSlices.create(slice);
    else if (!same(existing.endpoints ?? [], slice.endpoints) || !same(existing.ports, slice.ports))
      await endpointSlices.update({
        ...existing,
        ports: slice.ports ?? [],
        endpoints: slice.endpoints ?? [],
      });
  }

  async function writeStatuses({ ingresses: objects, ingressClasses }: GatewayObjects): Promise<void> {
    const classes = ownIngressClasses(ingressClasses);
    await all(
      objects.map(async (object) => {
        const name = classOf(object, classes);
        if (name === null) return;
        const service = services.get(GATEWAY_NAMESPACE, serviceNameOf(`ingress/${name}`));
        const addresses = service ? ingressAddresses(service) : [];
        const status = {
          loadBalancer: addresses.length === 0 ? {} : { ingress: addresses.map((ip) => ({ ip })) },
        };
        if (
          same(
            (object.status as Status | undefined)?.loadBalancer?.ingress ?? [],
            status.loadBalancer.ingress ?? [],
          )
        )
          return;
        const current = object as KubeObject;
        try {
          await client.patch(
            INGRESSES,
            current.metadata?.name ?? '',
            'merge',
            { status: { loadBalancer: { ingress: status.loadBalancer.ingress ?? null } } },
            {
              namespace: current.metadata?.namespace ?? '',
              subresource: 'status',
              signal,
            },
          );
        } catch (error) {
          if (!hasReason(error, 'NotFound')) throw error;
        }
      }),
    );
  }

  /** Each finding is an event once, until it has been absent. */
  function report(findings: readonly GatewayFinding[]): void {
    const present = new Set<string>();
    for (const { object, reason, message, severity } of findings) {
      const key = `${object.kind} ${object.namespace}/${object.name} ${reason} ${message}`;
      present.add(key);
      if (reported.has(key)) continue;
      const found = followed
        .objects()
        .ingresses.find(
          ({ metadata }) => metadata?.namespace === object.namespace && metadata.name === object.name,
        );
      if (!found || object.kind !== 'Ingress') continue;
      events.event(
        found as KubeObject,
        severity === 'warning' ? 'Warning' : 'Normal',
        reason,
        message,
        INGRESSES,
      );
    }
    reported.clear();
    for (const key of present) reported.add(key);
  }
}

const isForwarded = ({ ports }: GatewayPlan): boolean =>
  ports.some(({ kind }) => kind === 'http' || kind === 'tls');

/** Returns what makes each object unusable; null: it is usable. */
export const problemsOf = (
  results: ReadonlyMap<string, { readonly problem: string | null }>,
): ReadonlyMap<string, string | null> => new Map([...results].map(([key, { problem }]) => [key, problem]));

const relevant = ({ metadata, status }: Node): unknown => [
  (metadata?.annotations as Record<string, unknown> | undefined)?.[READY_PORTS_ANNOTATION],
  metadata?.deletionTimestamp,
  status?.addresses,
  status?.conditions?.find(({ type }) => type === 'Ready')?.status,
];

/** Reports whether a slice is one of these Services': others in the namespace are not touched. */
function isOfGateway({ metadata }: EndpointSlice, live: readonly Service[]): boolean {
  const name = (metadata?.labels as Record<string, string> | undefined)?.[SERVICE_NAME_LABEL];
  return live.some((service) => service.metadata?.name === name);
}
