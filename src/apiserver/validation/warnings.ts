import { type ApiObject, at, isObject, type JsonObject, listAt } from '../object.ts';
import { addressWarnings, rangeWarnings } from './addresses.ts';
import { OBJECT_WARNINGS } from './object-warnings.ts';
import { podWarnings } from './pod-warnings.ts';

const MAX_LABEL = 63;

/** Where the kinds that make pods have their template. */
const TEMPLATES: Readonly<Record<string, readonly string[]>> = {
  'daemonsets.apps': ['spec', 'template'],
  'deployments.apps': ['spec', 'template'],
  'jobs.batch': ['spec', 'template'],
  'cronjobs.batch': ['spec', 'jobTemplate', 'spec', 'template'],
  podtemplates: ['template'],
  'replicasets.apps': ['spec', 'template'],
  replicationcontrollers: ['spec', 'template'],
  'statefulsets.apps': ['spec', 'template'],
};

/**
 * Returns what the answer to a write warns of: fields that are valid, but have no effect, are deprecated, or are hardly
 * intended. Updates of pods, which controllers and nodes write, have no warnings, as upstream.
 */
export function objectWarnings(collection: string, object: ApiObject, before: ApiObject | null): string[] {
  if (collection === 'services') return serviceWarnings(object);
  const own = OBJECT_WARNINGS[collection]?.(object) ?? [];
  if (before && (collection === 'pods' || before.metadata.generation === object.metadata.generation)) {
    return own;
  }
  const template = collection === 'pods' ? [] : TEMPLATES[collection];
  if (!template) return own;
  const limit = at(object, 'spec', 'revisionHistoryLimit');
  return [
    ...own,
    ...(before ? [] : nameWarnings(collection, object.metadata.name ?? '')),
    ...specWarnings(object, template),
    ...(collection === 'statefulsets.apps' && Number(limit) < 0
      ? [
          'spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended',
        ]
      : []),
  ];
}

/** Kinds whose names become those of pods and hosts. */
const NAMING: Readonly<Record<string, string>> = {
  pods: "the Pod's hostname",
  'cronjobs.batch': 'Pod names and hostnames',
  'deployments.apps': 'Pod names and hostnames',
  'jobs.batch': 'Pod names and hostnames',
};

function nameWarnings(collection: string, name: string): string[] {
  const use = NAMING[collection];
  const problems = [
    ...(name.length > MAX_LABEL ? [`must be no more than ${MAX_LABEL} characters`] : []),
    ...(name.includes('.') ? ['must not contain dots'] : []),
  ];
  if (!use || problems.length === 0) return [];
  const why = 'which can result in surprising behavior; a DNS label is recommended';
  return [`metadata.name: this is used in ${use}, ${why}: [${problems.join(' ')}]`];
}

function specWarnings(object: ApiObject, path: readonly string[]): string[] {
  const spec = at(object, ...path, 'spec');
  const annotations = at(object, ...path, 'metadata', 'annotations');
  const place = [...path, 'spec'].join('.');
  return isObject(spec) ? podWarnings(spec, place, isObject(annotations) ? annotations : {}) : [];
}

function serviceWarnings(service: ApiObject): string[] {
  const spec: JsonObject = isObject(service['spec']) ? service['spec'] : {};
  const { type, clusterIP, loadBalancerIP = '', externalName = '', sessionAffinity } = spec;
  const isHeadless = type === 'ClusterIP' && clusterIP === 'None';
  const hasExternal = Array.isArray(spec['externalIPs']) && spec['externalIPs'].length > 0;
  const isName = type === 'ExternalName';
  const rows: readonly (readonly [holds: boolean, text: string])[] = [
    [
      service.metadata.annotations?.['service.kubernetes.io/topology-aware-hints'] !== undefined,
      'annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead',
    ],
    [isHeadless && loadBalancerIP !== '', 'spec.loadBalancerIP is ignored for headless services'],
    [isHeadless && hasExternal, 'spec.externalIPs is ignored for headless services'],
    [isHeadless && sessionAffinity !== 'None', 'spec.SessionAffinity is ignored for headless services'],
    [
      hasExternal && !isHeadless && !isName,
      'spec.externalIPs is deprecated and may no longer be implemented in some clusters',
    ],
    [isName && hasExternal, 'spec.externalIPs is ignored when spec.type is "ExternalName"'],
    [!isName && externalName !== '', 'spec.externalName is ignored when spec.type is not "ExternalName"'],
    [
      spec['trafficDistribution'] === 'PreferClose',
      'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"',
    ],
  ];
  const addresses = ['clusterIPs', 'externalIPs'].flatMap((list) => {
    const given = spec[list];
    return (Array.isArray(given) ? given : []).flatMap((ip, i) => addressWarnings(ip, `spec.${list}[${i}]`));
  });
  const ranges = listAt(spec, 'loadBalancerSourceRanges').flatMap((range, i) =>
    rangeWarnings(String(range).trim(), `spec.loadBalancerSourceRanges[${i}]`),
  );
  const balancer = loadBalancerIP === '' ? [] : addressWarnings(loadBalancerIP, 'spec.loadBalancerIP');
  return [...addresses, ...balancer, ...ranges, ...rows.filter(([holds]) => holds).map(([, text]) => text)];
}
