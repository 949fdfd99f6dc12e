import type { Pod } from '../kube/types.ts';
import { VOLUME_KINDS } from './volumes.ts';

/** Fields of a pod's spec that this runtime carries out, or that others do (the scheduler, the API server). */
const POD = new Set(
  (
    'activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks hostAliases ' +
    'hostNetwork hostname initContainers nodeName nodeSelector overhead preemptionPolicy priority priorityClassName ' +
    'readinessGates restartPolicy schedulerName os schedulingGates securityContext serviceAccount serviceAccountName subdomain ' +
    'terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes imagePullSecrets'
  ).split(' '),
);
const CONTAINER = new Set(
  (
    'args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resources restartPolicy ' +
    'securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeMounts workingDir'
  ).split(' '),
);
const POD_SECURITY = new Set([
  'runAsUser',
  'runAsGroup',
  'runAsNonRoot',
  'fsGroup',
  'supplementalGroups',
  'sysctls',
  'fsGroupChangePolicy',
]);
const CONTAINER_SECURITY = new Set(
  'allowPrivilegeEscalation capabilities privileged readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser'.split(
    ' ',
  ),
);

/** Kernel settings that a pod has for itself; others are the whole machine's (namespaces(7)). */
const POD_SYSCTL = /^(net\.|kernel\.(shm|msg|sem)|fs\.mqueue\.)/;

/** The fields of a pod that cannot be carried out here, by their paths: such a pod is refused, not run half. */
export function unsupportedFields(pod: Pod): string[] {
  const spec = (pod.spec ?? {}) as unknown as Record<string, unknown>;
  const problems = unknown(spec, POD, 'spec');
  problems.push(...unknown(spec['securityContext'], POD_SECURITY, 'spec.securityContext'));
  for (const list of ['initContainers', 'containers']) {
    for (const [i, container] of ((spec[list] ?? []) as Record<string, unknown>[]).entries()) {
      const path = `spec.${list}[${i}]`;
      problems.push(...unknown(container, CONTAINER, path));
      problems.push(...unknown(container['securityContext'], CONTAINER_SECURITY, `${path}.securityContext`));
    }
  }
  const os = (spec['os'] as { name?: string } | undefined)?.name;
  if (os !== undefined && os !== 'linux') problems.push(`spec.os.name=${os}`);
  const { sysctls = [] } = pod.spec?.securityContext ?? {};
  for (const { name } of sysctls) {
    if (!POD_SYSCTL.test(name)) problems.push(`spec.securityContext.sysctls[${name}]`);
  }
  const kinds = new Set<string>(['name', ...VOLUME_KINDS]);
  for (const [i, volume] of ((spec['volumes'] ?? []) as Record<string, unknown>[]).entries()) {
    problems.push(...unknown(volume, kinds, `spec.volumes[${i}]`));
  }
  return problems;
}

/** Fields that say something (false, empty lists and objects do not) and are not known. */
function unknown(value: unknown, known: ReadonlySet<string>, path: string): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value)
    .filter(([field, setting]) => !known.has(field) && says(setting))
    .map(([field]) => `${path}.${field}`);
}

function says(setting: unknown): boolean {
  if (setting === undefined || setting === null || setting === false || setting === '') return false;
  return typeof setting !== 'object' || Object.keys(setting).length > 0;
}
