import type { Service } from '../kube/types.ts';
import { closestName } from '../lib/closest-name.ts';
import { nameOf, namespaceOf } from './explain-places.ts';
import { noEndpoints } from './explain-pods.ts';
import type { Cause, ExplainStep, ExplainView, Origin } from './explain-view.ts';
import type { NameLog, NameTry } from './facts.ts';

/** The questions that were asked for a name, a step each, with the aliases that the answer goes through. */
export function nameSteps(name: string, log: NameLog): ExplainStep[] {
  const base = { object: null, ruleOrKey: null };
  if (log.fromHosts) {
    return [{ ...base, text: `${name} is ${log.addresses.join(', ')}`, ruleOrKey: '/etc/hosts' }];
  }
  if (log.servers.length === 0)
    return [{ ...base, text: `no name server to ask for ${name}`, ruleOrKey: 'resolv.conf' }];
  return log.tries.map((one) => ({
    ...base,
    ruleOrKey: `DNS ${one.name}, asked of ${one.server}`,
    text: `${one.name}: ${tryText(one)}`,
  }));
}

function tryText({ result, aliases, addresses }: NameTry): string {
  const alias = aliases.map((target) => `alias of ${target}, `).join('');
  if (addresses.length > 0) return `${alias}${addresses.join(', ')}`;
  return `${alias}${result === 'NOERROR' ? 'no address of that family' : result}`;
}

/** Why a name does not resolve where the flow begins. */
export interface NameFailure {
  /** The likeliest first. */
  readonly causes: readonly Cause[];
  /** The servers to blame: they were asked, and do not answer. */
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
      fix: 'let the pod reach its name servers, port 53 over UDP and TCP',
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

/** Whether one of the servers knows the names of Services. */
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
  // Without a Service for it, the cluster's DNS is not known here, and its names may be served by any server.
  return known.size === 0 || servers.some((server) => known.has(server));
}

function foreignResolver({ pod, label }: Origin, name: string, { servers, tries }: NameLog): Cause {
  const asked = servers.length === 0 ? 'none' : servers.join(', ');
  const results = [...new Set(tries.map(({ result }) => result))].join(', ');
  const text = `${name} is asked of ${asked}, not of the cluster's DNS${results ? `: ${results}` : ''}`;
  if (!pod) {
    return {
      text,
      object: label,
      field: '/etc/resolv.conf',
      fix: 'use the address: names of Services exist inside the cluster',
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
    fix: `correct the name ${target}, or let the cluster's DNS reach servers that know it`,
  };
}

/** The Service exists, and its name has no address (of that family). */
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
    return causes.map((cause) => ({ ...cause, text: `headless, and so without an address: ${cause.text}` }));
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
    text: `no name server knows ${name} as ${origin.label} asks for it`,
    object: null,
    field: null,
  };
  const elsewhere = named[0];
  if (elsewhere) {
    const { name: service, namespace } = elsewhere.metadata ?? {};
    return {
      ...cause,
      text: `there is no Service ${second ?? here}/${first}; there is ${nameOf(elsewhere)}`,
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

/** The Service that a name means, by its first two labels and the search path. */
function serviceNamed(view: ExplainView, origin: Origin, name: string, log: NameLog): Service | null {
  const [first = '', second] = name.split('.');
  const namespace = second ?? log.search[0]?.split('.')[0] ?? namespaceOf(origin);
  for (const service of view.services()) {
    if (service.metadata?.name === first && service.metadata.namespace === namespace) return service;
  }
  return null;
}
