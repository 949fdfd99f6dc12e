import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { problemsOf } from '../controllers/gateways.ts';
import { followGatewayObjects } from '../gateway/follow-objects.ts';
import { followReferences } from '../gateway/follow-references.ts';
import { gatewayOf, READY_PORTS_ANNOTATION, readyPortsText } from '../gateway/gateway-service.ts';
import { findReferences, withFallback } from '../gateway/references.ts';
import { backendEndpoints, indexSlices } from '../gateway/service-endpoints.ts';
import { findProgram } from '../kernel/program-path.ts';
import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, type Node, RESOURCES, type Service } from '../kube/types.ts';
import { pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { createAuthority } from '../lib/pki.ts';
import { type AgentContext, addressesOf } from './agent-context.ts';
import { planGateways, renderPlans } from './gateway-plan.ts';
import { createGatewayProxy, type GatewayProxy, proxySettings } from './gateway-proxy.ts';

export interface GatewaySources {
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** This node's own object. */
  readonly own: Informer<Node>;
}

/** The gateways of a node. */
export interface GatewayPart {
  /** Why gateways of this node do not work as they should; empty: they do, or there are none. */
  problems(): readonly string[];
}

/** Changes that come within this time are applied together. */
const COLLECT_MS = 10;
/** A proxy that has not answered for this long is reported, so that its node is left out. */
const SILENT_MS = 1000;
const RETRY_MS = 2000;
/** Of one change: a Node has a limited burst of events. */
const MAX_EVENTS = 5;
const PROGRAM = 'haproxy';
const FURTHER_FOLDERS = ['/usr/sbin', '/usr/local/sbin'];

/**
 * Runs the proxy of the node's gateways while there are any: Services that the controller has made for them. Before that, it reads
 * nothing that other parts do not follow anyway.
 */
export function startGateways(context: AgentContext, sources: GatewaySources): GatewayPart {
  const folder = join(context.configuration.stateDir, 'gateway');
  let session: { readonly end: AbortController; readonly problems: () => readonly string[] } | null = null;
  const begin = () => {
    if (session || context.signal.aborted) return;
    const end = new AbortController();
    const running = runGateways(context, sources, folder, AbortSignal.any([context.signal, end.signal]));
    session = { end, problems: running.problems };
    running.ended.then(
      () => {
        session = null;
        // One may have been made meanwhile.
        if (sources.services.list().some(isGateway)) begin();
      },
      (error: unknown) => context.logger.error({ err: error }, `gateways: ${messageOf(error)}`),
    );
  };
  const look = (service: Service) => {
    if (isGateway(service)) begin();
  };
  sources.services.handle({ onAdd: look, onUpdate: look });
  // A proxy that an earlier agent has left is adopted, or ended.
  if (existsSync(join(folder, 'proxy.json'))) begin();
  return { problems: () => session?.problems() ?? [] };
}

const isGateway = (service: Service): boolean => gatewayOf(service) !== null;

const pemsOf = (results: ReadonlyMap<string, { readonly pem: string | null }>): ReadonlyMap<string, string> =>
  new Map([...results].flatMap(([key, { pem }]) => (pem === null ? [] : [[key, pem] as const])));

/** Returns a certificate that no client trusts, with its key, for hosts whose Secret is missing. */
function selfMadeCertificate(now: Date): string {
  const authority = createAuthority('fairlead gateway', now);
  const { cert, key } = authority.issue({
    commonName: 'fairlead gateway without a certificate',
    usage: 'server',
  });
  return `${cert.trim()}\n${key.trim()}\n`;
}

/** Runs until there are no more gateways. */
function runGateways(
  context: AgentContext,
  { services, slices, own }: GatewaySources,
  folder: string,
  signal: AbortSignal,
): { readonly ended: Promise<void>; readonly problems: () => readonly string[] } {
  const { client, clock, random, configuration } = context;
  const logger = context.logger.child({ part: 'gateway' });
  let proxy: GatewayProxy | null = null;
  let problems: readonly string[] = [];
  let changed = { routes: true, endpoints: false };
  let wake = () => {};
  const onChange = () => {
    changed.routes = true;
    wake();
  };
  const index = indexSlices(slices, () => {
    changed.endpoints = true;
    wake();
  });
  const end = new AbortController();
  const inner = AbortSignal.any([signal, end.signal]);
  const options = { client, clock, random, logger, signal: inner, onChange };
  const followed = followGatewayObjects({ ...options, services });
  const references = followReferences(options);
  const stopNode = own.handle({ onUpdate: () => wake() });
  const settings = proxySettings(folder);
  const fallbackCertificate = selfMadeCertificate(new Date(clock.now()));

  const apply = async (): Promise<void> => {
    const program = findProgram(PROGRAM, FURTHER_FOLDERS);
    if (program === null) {
      const problem =
        'HAProxy is not installed, so Ingresses and Gateways do not work here: apt install haproxy';
      if (!problems.includes(problem)) context.nodeEvent('Warning', 'HaproxyMissing', problem);
      problems = [problem];
      return;
    }
    proxy ??= createGatewayProxy({ program, folder, clock, logger, onChange: () => wake() });
    const objects = followed.objects();
    references.follow(findReferences(objects));
    await references.known();
    const gatewayServices = services.list().filter(isGateway);
    const node = own.get(configuration.nodeName);
    const known = {
      ...objects,
      certificates: problemsOf(references.certificates),
      authorities: problemsOf(references.authorities),
    };
    const plans = planGateways(
      { ...known, certificates: withFallback(known) },
      gatewayServices,
      node ? addressesOf(node) : [],
    );
    const sockets = proxy.process.openSockets(plans.places);
    const certificates = pemsOf(references.certificates);
    const authorities = pemsOf(references.authorities);
    await proxy.apply({
      places: sockets.open,
      endpointsOf,
      render: (excluded) =>
        renderPlans(
          plans,
          sockets.open,
          { settings, certificates, authorities, fallbackCertificate },
          excluded,
        ),
    });
    const found = [
      ...sockets.problems,
      ...(proxy.problem === null ? [] : [`the proxy refuses its configuration: ${proxy.problem}`]),
      ...proxy.refused.map(({ id, reason }) => `${id}: ${reason}`),
    ];
    for (const text of found.filter((one) => !problems.includes(one)).slice(0, MAX_EVENTS)) {
      logger.warn({}, text);
      context.nodeEvent('Warning', 'GatewayNotProgrammed', text);
    }
    problems = found;
  };
  const endpointsOf = ({
    namespace,
    service,
    port,
  }: {
    namespace: string;
    service: string;
    port: number;
  }) => {
    const name = `${namespace}/${service}`;
    return backendEndpoints({ port }, services.get(name), index.of(name));
  };
  let reported = '';
  let silentSince: number | null = null;
  /** Tells the controller which ports this node answers. */
  const report = async (): Promise<void> => {
    const isAnswering = proxy?.process.isAnswering === true;
    if (!isAnswering && proxy !== null) silentSince ??= clock.now();
    else silentSince = null;
    if (silentSince !== null && clock.now() - silentSince < SILENT_MS) return;
    const text = isAnswering ? readyPortsText(proxy?.process.places.map(({ port }) => port) ?? []) : '';
    const node = own.get(configuration.nodeName);
    const known =
      (node?.metadata?.annotations as Record<string, string> | undefined)?.[READY_PORTS_ANNOTATION] ?? '';
    if (!node || (text === reported && text === known)) return;
    await client.patch(
      RESOURCES.nodes,
      configuration.nodeName,
      'merge',
      { metadata: { annotations: { [READY_PORTS_ANNOTATION]: text === '' ? null : text } } },
      { signal },
    );
    reported = text;
  };
  const run = async (): Promise<void> => {
    await followed.synced;
    while (!signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = resolve;
      const work = changed;
      changed = { routes: false, endpoints: false };
      try {
        if (work.routes) await apply();
        else if (work.endpoints && proxy && !(await proxy.applyEndpoints(endpointsOf))) changed.routes = true;
        if (work.routes && !services.list().some(isGateway)) break;
        await report();
      } catch (error) {
        if (signal.aborted) break;
        logger.warn({ err: error }, `gateways: ${messageOf(error)}`);
        changed.routes = true;
        await pause(clock, RETRY_MS, signal);
        continue;
      }
      if (!changed.routes && !changed.endpoints)
        await Promise.race([promise, pause(clock, RETRY_MS, signal)]);
      if (changed.routes) await pause(clock, COLLECT_MS, signal);
    }
  };
  const ended = run().finally(async () => {
    index.close();
    stopNode();
    end.abort();
    if (signal.aborted) proxy?.process.close();
    else {
      proxy?.process.stop();
      proxy?.process.close();
      await report().catch(() => {});
    }
  });
  return { ended, problems: () => problems };
}
