import type { Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { closestName } from '../lib/closest-name.ts';
import { nameOf, namespaceOf } from './explain-places.ts';
import { noEndpoints } from './explain-pods.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Cause, ExplainStep } from './explanation.ts';
import type { NameLog, NameTry } from './facts.ts';
import { WAY_OUT } from './way-out.ts';

/** Describes each question to a name server as a step, with the aliases in its answer. */
export function nameSteps(name: string, log: NameLog): ExplainStep[] {
  const base = { subject: 'name', object: null, ruleOrKey: null } as const;
  if (log.fromHosts) {
    return [{ ...base, text: `${name} is ${log.addresses.join(', ')}`, ruleOrKey: '/etc/hosts' }];
  }
  if (log.servers.length === 0)
    return [{ ...base, text: `no name server is configured`, ruleOrKey: 'resolv.conf' }];
  return log.tries.map((one) => {
    const { name, server } = one;
    const result = tryText(one);
    return {
      ...base,
      ruleOrKey: `DNS query for ${name} to ${server}`,
      text: `${name}: ${result}`,
      question: { name, server, result },
    };
  });
}

function tryText({ result, aliases, addresses }: NameTry): string {
  const alias = aliases.map((target) => `alias of ${target}, `).join('');
  if (addresses.length > 0) return `${alias}${addresses.join(', ')}`;
  return `${alias}${result === 'NOERROR' ? 'no address of that family' : result}`;
}

/** The reasons why a name does not resolve at the origin of a flow. */
export interface NameFailure {
  /** The most likely first. */
  readonly causes: readonly Cause[];
  /** The name servers that did not answer, if that is the cause. */
  readonly silentServers: readonly string[];
}

export function nameFailure(view: ExplainView, origin: Origin, name: string, log: NameLog): NameFailure {
  const service = serviceNamed(view, origin, name, log);
  const because = (causes: readonly Cause[]): NameFailure => ({ causes, silentServers: [] });
  if (!asksClusterDns(view, log)) return because([foreignResolver(origin, name, log)]);
  const unanswered = log.tries.filter(({ result }) => !isAnswer(result));
  if (log.tries.length > 0 && unanswered.length === log.tries.length) {
    const servers = [...new Set(unanswered.map(({ server, result }) => `${server} (${result})`))];
    const cause = {
      text: `no name server answers: ${servers.join(', ')}`,
      object: null,
      field: '/etc/resolv.conf nameserver',
      fix: 'allow the pod to reach its name servers, port 53 over UDP and TCP',
    };
    const silent = unanswered.filter(({ result }) => result === 'no answer').map(({ server }) => server);
    return { causes: [cause], silentServers: [...new Set(silent)] };
  }
  const alias = log.tries.find(({ aliases }) => aliases.length > 0);
  if (alias) return because([aliasCause(service, alias)]);
  // A headless Service without ready endpoints is answered like a name that does not exist.
  const isHeadless = service?.spec?.clusterIP === 'None';
  if (service && (isHeadless ? wasAsked(log, service) : isFound(log)))
    return because(withoutAddress(view, service, name));
  return because([unknownName(view, origin, name, log)]);
}

const isAnswer = (result: string) => /^[A-Z]+$/.test(result) && !result.startsWith('E');
const isFound = ({ tries }: NameLog) => tries.some(({ result }) => result === 'NOERROR');

/** Reports whether one of the servers knows the names of Services. */
function asksClusterDns(view: ExplainView, { servers }: NameLog): boolean {
  const known = new Set<string>();
  for (const { metadata, spec } of view.services()) {
    if (
      metadata?.namespace === 'kube-system' &&
      (metadata.name === 'kube-dns' || metadata.name === 'coredns')
    ) {
      for (const address of spec?.clusterIPs ?? []) known.add(address);
    }
  }
  for (const { metadata } of view.nodes()) {
    for (const address of view.map(metadata?.name ?? '')?.node.ownServiceAddresses ?? []) known.add(address);
  }
  // Without such a Service, the address of the cluster's DNS is unknown, and any server may know the names.
  return known.size === 0 || servers.some((server) => known.has(server));
}

function foreignResolver({ pod, label }: Origin, name: string, { servers, tries }: NameLog): Cause {
  const asked = servers.length === 0 ? 'no name server' : servers.join(', ');
  const results = [...new Set(tries.map(({ result }) => result))].join(', ');
  const text = `${name} is resolved by ${asked}, not by the cluster's DNS${results ? `: ${results}` : ''}`;
  if (!pod) {
    return {
      text,
      object: label,
      field: '/etc/resolv.conf',
      fix: 'use the address: only pods resolve names of Services',
    };
  }
  const policy = pod.spec?.dnsPolicy ?? 'ClusterFirst';
  const isHost = pod.spec?.hostNetwork === true;
  const wanted = isHost ? 'ClusterFirstWithHostNet' : 'ClusterFirst';
  return {
    text: `${text} (dnsPolicy ${policy}${isHost ? ', host network' : ''})`,
    object: `Pod ${nameOf(pod)}`,
    field: 'spec.dnsPolicy',
    fix: `set dnsPolicy: ${wanted}`,
  };
}

function aliasCause(service: Service | null, { aliases, result, server }: NameTry): Cause {
  const target = aliases.at(-1) ?? '';
  const isExternal = service?.spec?.type === 'ExternalName';
  return {
    text: `${isExternal ? `Service ${nameOf(service)} is an alias of` : 'it is an alias of'} ${target}, which does not resolve: ${result} from ${server}`,
    object: service ? `Service ${nameOf(service)}` : null,
    field: isExternal ? 'spec.externalName' : null,
    fix: `correct the name ${target}, or configure upstreams of the cluster's DNS that know it`,
  };
}

/** Explains why the name of an existing Service has no address, or none of the IP family. */
function withoutAddress(view: ExplainView, service: Service, name: string): Cause[] {
  const object = `Service ${nameOf(service)}`;
  const { spec, metadata } = service;
  if (spec?.clusterIP === 'None') {
    const port = spec.ports?.[0];
    const causes = noEndpoints(
      view,
      service,
      {
        namespace: metadata?.namespace ?? '',
        name: metadata?.name ?? '',
        portName: port?.name ?? '',
        protocol: 'TCP',
      },
      spec.ipFamilies?.[0] === 'IPv6' ? 'ipv6' : 'ipv4',
    );
    return causes.map((cause) => ({ ...cause, text: `headless Service without endpoints: ${cause.text}` }));
  }
  const families = (spec?.ipFamilies ?? []).join(' and ');
  return [
    {
      text: `${name} has ${families || 'no'} addresses only`,
      object,
      field: 'spec.ipFamilies',
      fix: `use ${families || 'another family'}, or set ipFamilyPolicy: PreferDualStack`,
    },
  ];
}

/** Reports whether one of the questions was for the full name of a Service. */
function wasAsked(log: NameLog, service: Service): boolean {
  const full = `${fullName(service)}.${domainOf(log) ?? ''}`;
  return log.tries.some(({ name }) => (full.endsWith('.') ? name.startsWith(full) : name === full));
}

/** Returns the cluster's domain, which the search path of pods ends with; null: unknown. */
const domainOf = ({ search }: NameLog): string | null =>
  search.flatMap((one) => /(?:^|\.)svc\.(.+)$/.exec(one)?.[1] ?? [])[0] ?? null;

/** "web.shop.svc", without the domain of the cluster. */
const fullName = ({ metadata }: Service): string => `${metadata?.name}.${metadata?.namespace}.svc`;

/** "web.shop" is ["web", "shop"], and so is "web.shop." */
const labelsOf = (name: string): string[] => name.replace(/\.$/, '').split('.');

function unknownName(view: ExplainView, origin: Origin, name: string, log: NameLog): Cause {
  const [first = '', second, third] = labelsOf(name);
  const services = [...view.services()];
  const named = services.filter(({ metadata }) => metadata?.name === first);
  const here = namespaceOf(origin);
  const meant = named.find(({ metadata }) => metadata?.namespace === (second ?? here));
  if (meant) return notAsked(origin, name, log, meant);
  const cause = {
    text: `${origin.label} cannot resolve ${name}`,
    object: null,
    field: null,
  };
  const elsewhere = named[0];
  if (elsewhere) {
    const { name: service, namespace } = elsewhere.metadata ?? {};
    return {
      ...cause,
      text: `there is no Service ${second ?? here}/${first}; Service ${nameOf(elsewhere)} exists`,
      object: `Service ${nameOf(elsewhere)}`,
      fix: `use ${service}.${namespace}`,
    };
  }
  const owner = services.find(
    ({ metadata, spec }) =>
      spec?.clusterIP === 'None' && metadata?.name === second && metadata?.namespace === (third ?? here),
  );
  if (owner) return noSuchMember(view, owner, first);
  for (const { metadata } of view.pods()) {
    if (metadata?.name !== first) continue;
    return {
      ...cause,
      text: `${first} is a pod: names of pods do not resolve`,
      fix: `write pod/${nameOf({ metadata })}, or make a Service for it`,
    };
  }
  const like = closestName(
    first,
    services.flatMap(({ metadata }) => metadata?.name ?? []),
  );
  const similar = services.find(({ metadata }) => metadata?.name === like);
  if (!similar && second !== undefined && !hasNamespace(view, second)) {
    const closed = noWayOut(view, origin, name);
    if (closed) return closed;
  }
  return {
    ...cause,
    text: `there is no Service ${second ?? here}/${first}, and no other name server knows ${name}`,
    fix: similar
      ? `did you mean ${similar.metadata?.namespace === here ? like : `${like}.${similar.metadata?.namespace}`}?`
      : 'check the name; names of Services are SERVICE.NAMESPACE',
  };
}

const hasNamespace = (view: ExplainView, namespace: string): boolean =>
  [...view.services(), ...view.pods()].some(({ metadata }) => metadata?.namespace === namespace);

/** Addresses for documentation (RFC 5737, RFC 3849): the routes to them are those to any external address. */
const EXTERNAL_ADDRESSES = ['198.51.100.1', '2001:db8::1'];

/** The cause of an external name that is asked for on a node without a route out of the cluster; null: it has one. */
function noWayOut(view: ExplainView, { node }: Origin, name: string): Cause | null {
  if (node === null) return null;
  const routes = EXTERNAL_ADDRESSES.map((address) => view.facts.route({ kind: 'node', node }, address));
  if (routes.some((route) => route !== null)) return null;
  return {
    text: `${name} is not a name of the cluster, and node ${node} has no route out of the cluster`,
    object: `Node ${node}`,
    field: 'routes',
    fix: WAY_OUT,
  };
}

/** Explains why the name of a Service that exists did not lead to it. */
function notAsked({ label, pod }: Origin, name: string, log: NameLog, service: Service): Cause {
  const object = `Service ${nameOf(service)}`;
  if (wasAsked(log, service)) {
    const fix = 'ask again: a name server knows a new Service after a moment';
    return {
      text: `the name server ${log.servers[0]} does not know ${fullName(service)}`,
      object,
      field: null,
      fix,
    };
  }
  const [, , , ...domain] = labelsOf(name);
  if (domain.length > 0) {
    const text = `${domain.join('.')} is not the domain of the cluster`;
    return { text, object, field: null, fix: `use ${fullName(service)}` };
  }
  if (name.endsWith('.')) {
    return {
      text: `the dot at the end of ${name} makes it a full name: the search path is not applied`,
      object,
      field: null,
      fix: `use ${name.slice(0, -1)}`,
    };
  }
  return {
    text: `the search path of ${label} (${log.search.join(' ') || 'empty'}) does not lead from ${name} to ${fullName(service)}`,
    object: pod && `Pod ${nameOf(pod)}`,
    field: pod && 'spec.dnsConfig.searches',
    fix: `use the full name, ${fullName(service)}.${domainOf(log) ?? 'cluster.local'}`,
  };
}

/** Explains why a headless Service has no endpoint with a host name. */
function noSuchMember(view: ExplainView, service: Service, host: string): Cause {
  const object = `Service ${nameOf(service)}`;
  const names = new Set<string>();
  for (const { metadata, endpoints } of view.slices()) {
    if (metadata?.namespace !== service.metadata?.namespace) continue;
    if (metadata?.labels?.[SERVICE_NAME_LABEL] !== service.metadata?.name) continue;
    for (const { hostname, conditions } of endpoints ?? [])
      if (hostname && conditions?.ready !== false) names.add(hostname);
  }
  const known = [...names].sort();
  const some = known.slice(0, 3).join(', ') + (known.length > 3 ? ', …' : '');
  return {
    text: `${object} has no ready endpoint with the host name ${host}`,
    object,
    field: null,
    fix:
      known.length > 0
        ? `use a name that it has: ${some}`
        : 'give its pods spec.hostname and spec.subdomain, as a StatefulSet does',
  };
}

/** Returns the Service that a name denotes, by its first two labels and the search path. */
function serviceNamed(view: ExplainView, origin: Origin, name: string, log: NameLog): Service | null {
  const [first = '', second] = labelsOf(name);
  const namespace = second ?? log.search[0]?.split('.')[0] ?? namespaceOf(origin);
  for (const service of view.services()) {
    if (service.metadata?.name === first && service.metadata.namespace === namespace) return service;
  }
  return null;
}
