import type { Service } from '../kube/types.ts';
import { closestName } from '../lib/closest-name.ts';
import { nameOf, namespaceOf } from './explain-places.ts';
import { noEndpoints } from './explain-pods.ts';
import type { Cause, ExplainStep, ExplainView, Origin } from './explain-view.ts';
import type { NameLog, NameTry } from './facts.ts';

/** Describes each question to a name server as a step, with the aliases in its answer. */
export function nameSteps(name: string, log: NameLog): ExplainStep[] {
  const base = { subject: 'name', object: null, ruleOrKey: null } as const;
  if (log.fromHosts) {
    return [{ ...base, text: `${name} is ${log.addresses.join(', ')}`, ruleOrKey: '/etc/hosts' }];
  }
  if (log.servers.length === 0)
    return [{ ...base, text: `no name server is configured`, ruleOrKey: 'resolv.conf' }];
  return log.tries.map((one) => ({
    ...base,
    ruleOrKey: `DNS query for ${one.name} to ${one.server}`,
    text: `${one.name}: ${tryText(one)}`,
    question: { name: one.name, server: one.server },
  }));
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
  if (service && isFound(log)) return because(withoutAddress(view, service, name));
  return because([unknownName(view, origin, name)]);
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

function unknownName(view: ExplainView, origin: Origin, name: string): Cause {
  const [first = '', second] = name.split('.');
  const services = [...view.services()];
  const named = services.filter(({ metadata }) => metadata?.name === first);
  const here = namespaceOf(origin);
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
  const meant = services.find(({ metadata }) => metadata?.name === like);
  return {
    ...cause,
    text: `there is no Service ${second ?? here}/${first}, and no other name server knows ${name}`,
    fix: meant
      ? `did you mean ${meant.metadata?.namespace === here ? like : `${like}.${meant.metadata?.namespace}`}?`
      : 'check the name; names of Services are SERVICE.NAMESPACE',
  };
}

/** Returns the Service that a name denotes, by its first two labels and the search path. */
function serviceNamed(view: ExplainView, origin: Origin, name: string, log: NameLog): Service | null {
  const [first = '', second] = name.split('.');
  const namespace = second ?? log.search[0]?.split('.')[0] ?? namespaceOf(origin);
  for (const service of view.services()) {
    if (service.metadata?.name === first && service.metadata.namespace === namespace) return service;
  }
  return null;
}
