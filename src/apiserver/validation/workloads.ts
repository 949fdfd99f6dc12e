import { selectorMatches } from '../label-selector.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, textAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { validateLabelSelector, validateLabels } from './names.ts';
import { validatePodSpec } from './pod.ts';

const STATEFUL_SET_CHANGEABLE = [
  'replicas',
  'ordinals',
  'template',
  'updateStrategy',
  'revisionHistoryLimit',
  'persistentVolumeClaimRetentionPolicy',
  'minReadySeconds',
];

/** Checks Deployments, ReplicaSets, DaemonSets and StatefulSets: selector, template, numbers, what must not change. */
export function validateWorkload(object: ApiObject, before: ApiObject | null): FieldError[] {
  const spec = object['spec'];
  if (!isObject(spec)) return [required('spec.selector'), required('spec.template')];
  const errors = validateLabelSelector(spec['selector'], 'spec.selector');
  const selector = spec['selector'];
  const labels = at(spec, 'template', 'metadata', 'labels');
  if (!isObject(selector)) errors.push(required('spec.selector'));
  else if (Object.keys(selector).length === 0) {
    errors.push(
      invalid('spec.selector', selector, `empty selector is invalid for ${object.kind.toLowerCase()}`),
    );
  } else if (!selectorMatches(selector, isObject(labels) ? (labels as Record<string, string>) : {})) {
    errors.push(
      invalid('spec.template.metadata.labels', labels ?? {}, '`selector` does not match template `labels`'),
    );
  }
  errors.push(...validateLabels(labels, 'spec.template.metadata.labels'));
  const template = at(spec, 'template', 'spec');
  errors.push(
    ...(isObject(template)
      ? validatePodSpec(template, 'spec.template.spec')
      : [required('spec.template.spec.containers')]),
  );
  const policy = textAt(spec, 'template', 'spec', 'restartPolicy');
  if (policy !== '' && policy !== 'Always') {
    errors.push(notSupported('spec.template.spec.restartPolicy', policy, ['Always']));
  }
  for (const field of ['replicas', 'minReadySeconds', 'revisionHistoryLimit', 'progressDeadlineSeconds']) {
    const value = spec[field];
    if (value !== undefined && (typeof value !== 'number' || !Number.isInteger(value) || value < 0)) {
      errors.push(invalid(`spec.${field}`, value, 'must be greater than or equal to 0'));
    }
  }
  const strategies: Record<string, readonly string[]> = {
    Deployment: ['Recreate', 'RollingUpdate'],
    DaemonSet: ['OnDelete', 'RollingUpdate'],
    StatefulSet: ['OnDelete', 'RollingUpdate'],
  };
  const field = object.kind === 'Deployment' ? 'strategy' : 'updateStrategy';
  const known = strategies[object.kind];
  const type = at(spec, field, 'type');
  if (known && !known.includes(String(type))) errors.push(notSupported(`spec.${field}.type`, type, known));
  const surge = amount(at(spec, field, 'rollingUpdate', 'maxSurge'));
  const unavailable = amount(at(spec, field, 'rollingUpdate', 'maxUnavailable'));
  if (object.kind === 'Deployment' && surge === 0 && unavailable === 0) {
    errors.push(
      invalid('spec.strategy.rollingUpdate.maxUnavailable', 0, 'may not be 0 when `maxSurge` is 0'),
    );
  }
  for (const [name, value] of [
    ['maxSurge', surge],
    ['maxUnavailable', unavailable],
  ] as const) {
    if (Number.isNaN(value)) {
      errors.push(
        invalid(
          `spec.${field}.rollingUpdate.${name}`,
          at(spec, field, 'rollingUpdate', name),
          "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ),
      );
    }
  }
  if (before && object.kind === 'StatefulSet') {
    const fixed = (set: ApiObject) => {
      const spec: JsonObject = { ...(isObject(set['spec']) ? set['spec'] : {}) };
      for (const field of STATEFUL_SET_CHANGEABLE) delete spec[field];
      return spec;
    };
    if (!equal(fixed(object), fixed(before))) {
      errors.push(
        forbidden(
          'spec',
          "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
      );
    }
  } else if (before && !equal(at(before, 'spec', 'selector'), selector)) {
    errors.push(invalid('spec.selector', selector ?? null, 'field is immutable'));
  }
  return errors;
}

export function validateJob(job: ApiObject, before: ApiObject | null): FieldError[] {
  const spec = job['spec'];
  if (!isObject(spec)) return [required('spec.template')];
  const template = at(spec, 'template', 'spec');
  const errors = isObject(template)
    ? validatePodSpec(template, 'spec.template.spec')
    : [required('spec.template.spec.containers')];
  const policy = textAt(spec, 'template', 'spec', 'restartPolicy');
  if (policy === 'Always') {
    errors.push({
      field: 'spec.template.spec.restartPolicy',
      reason: 'FieldValueRequired',
      message: 'Required value: valid values: "OnFailure", "Never"',
    });
  }
  for (const field of [
    'parallelism',
    'completions',
    'backoffLimit',
    'activeDeadlineSeconds',
    'ttlSecondsAfterFinished',
  ]) {
    const value = spec[field];
    if (value !== undefined && (typeof value !== 'number' || value < 0)) {
      errors.push(invalid(`spec.${field}`, value, 'must be greater than or equal to 0'));
    }
  }
  if (before && !equal(at(before, 'spec', 'template'), at(spec, 'template'))) {
    errors.push(invalid('spec.template', '…', 'field is immutable'));
  }
  return errors;
}

/** A number of pods or a percentage; NaN for anything else, undefined where absent. */
function amount(value: unknown): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'number') return value >= 0 ? value : Number.NaN;
  return typeof value === 'string' && /^[0-9]+%$/.test(value) ? Number(value.slice(0, -1)) : Number.NaN;
}
