import { type ApiObject, at, isObject, type JsonObject, textAt } from '../../object.ts';
import type { ObjectView } from '../../object-view.ts';
import { type FieldError, invalid, invalidObject } from '../../status-error.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../plugin.ts';
import { admissionForbidden } from '../refusal.ts';
import { BASELINE, type Check, podParts, RESTRICTED } from './checks.ts';

const PREFIX = 'pod-security.kubernetes.io/';
const CHECKS: Readonly<Record<string, readonly Check[]>> = {
  privileged: [],
  baseline: BASELINE,
  restricted: RESTRICTED,
};
const VERSION = /^(latest|v1\.[0-9]+)$/;
/** Path of the pod template in each workload. */
const TEMPLATES: Readonly<Record<string, readonly string[]>> = {
  podtemplates: ['template'],
  replicationcontrollers: ['spec', 'template'],
  'replicasets.apps': ['spec', 'template'],
  'deployments.apps': ['spec', 'template'],
  'statefulsets.apps': ['spec', 'template'],
  'daemonsets.apps': ['spec', 'template'],
  'jobs.batch': ['spec', 'template'],
  'cronjobs.batch': ['spec', 'jobTemplate', 'spec', 'template'],
};

/**
 * Enforces the Pod Security Standards that a namespace's labels name: `enforce` refuses pods; `warn` warns about pods,
 * and about workloads whose pods would violate it (upstream's PodSecurity plugin). Every version is treated as the
 * latest.
 */
export function createPodSecurity(view: ObjectView): AdmissionPlugin {
  return {
    name: 'PodSecurity',
    handles: ({ resource, operation, subresource }) =>
      (operation === 'CREATE' || operation === 'UPDATE') &&
      (nameOf(resource) === 'namespaces' ||
        nameOf(resource) in TEMPLATES ||
        (nameOf(resource) === 'pods' && ['', 'ephemeralcontainers', 'resize'].includes(subresource))),
    validate(attributes) {
      const { resource, object, oldObject, namespace, subresource } = attributes;
      if (!object) return;
      const name = nameOf(resource);
      if (name === 'namespaces') {
        if (subresource === '') checkLabels(attributes, object);
        return;
      }
      const labels = view.get('namespaces', `/${namespace}`)?.metadata.labels ?? {};
      if (name === 'pods') {
        // Changes of metadata and status do not check the spec, as upstream.
        if (oldObject && subresource === '' && !imagesChange(object, oldObject)) return;
        checkPod(attributes, object, labels);
      } else if (subresource === '') warnAboutTemplate(attributes, object, TEMPLATES[name] ?? [], labels);
    },
  };
}

const nameOf = ({ group, resource }: AdmissionAttributes['resource']) =>
  group === '' ? resource : `${resource}.${group}`;

type Labels = Readonly<Record<string, string>>;

function levelOf(labels: Labels, mode: 'enforce' | 'warn'): { level: string; version: string } {
  const level = labels[PREFIX + mode] ?? 'privileged';
  return {
    // An invalid label counts as the strictest level, so that nothing bypasses the check.
    level: Object.hasOwn(CHECKS, level) ? level : 'restricted',
    version: labels[`${PREFIX}${mode}-version`] ?? 'latest',
  };
}

function violations(metadata: unknown, spec: JsonObject, level: string): string | null {
  const pod = podParts(metadata, spec);
  const found = (CHECKS[level] ?? []).flatMap((check) => check(pod) ?? []);
  return found.length > 0 ? found.map(({ reason, detail }) => `${reason} (${detail})`).join(', ') : null;
}

function checkPod(attributes: AdmissionAttributes, pod: ApiObject, labels: Labels): void {
  if (!isObject(pod['spec'])) return;
  const enforce = levelOf(labels, 'enforce');
  const refused = violations(pod.metadata, pod['spec'], enforce.level);
  if (refused !== null) {
    throw admissionForbidden(
      attributes,
      `violates PodSecurity "${enforce.level}:${enforce.version}": ${refused}`,
    );
  }
  const warn = levelOf(labels, 'warn');
  const warned = violations(pod.metadata, pod['spec'], warn.level);
  if (warned !== null)
    attributes.warn(`would violate PodSecurity "${warn.level}:${warn.version}": ${warned}`);
}

function warnAboutTemplate(
  attributes: AdmissionAttributes,
  object: ApiObject,
  path: readonly string[],
  labels: Labels,
): void {
  const template = at(object, ...path);
  const spec = at(template, 'spec');
  if (!isObject(spec)) return;
  const { level, version } = levelOf(labels, 'warn');
  const found = violations(at(template, 'metadata'), spec, level);
  if (found !== null) attributes.warn(`would violate PodSecurity "${level}:${version}": ${found}`);
}

/**
 * Reports whether the images of a pod's spec change; of its other fields, no control inspects those that can change.
 */
function imagesChange(pod: ApiObject, before: ApiObject): boolean {
  const images = (of: ApiObject) =>
    isObject(of['spec'])
      ? podParts({}, of['spec'])
          .containers.map((container) => textAt(container, 'image'))
          .join()
      : '';
  return images(pod) !== images(before);
}

/** Refuses namespace labels that do not name a level or version. Throws StatusError 422. */
function checkLabels(attributes: AdmissionAttributes, namespace: ApiObject): void {
  const labels = namespace.metadata.labels ?? {};
  const errors: FieldError[] = [];
  for (const mode of ['enforce', 'audit', 'warn']) {
    const level = labels[PREFIX + mode];
    const version = labels[`${PREFIX}${mode}-version`];
    const field = (key: string) => `metadata.labels[${key}]`;
    if (level !== undefined && !Object.hasOwn(CHECKS, level))
      errors.push(invalid(field(PREFIX + mode), level, 'must be one of privileged, baseline, restricted'));
    if (version !== undefined && !VERSION.test(version))
      errors.push(invalid(field(`${PREFIX}${mode}-version`), version, 'must be "latest" or "v1.x"'));
  }
  if (errors.length === 0) return;
  throw invalidObject({ group: '', kind: 'Namespace', plural: 'namespaces' }, attributes.name, errors);
}
