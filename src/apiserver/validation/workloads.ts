import { selectorMatches } from '../label-selector.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { validateClaimSpec } from './claims.ts';
import { validateTemplateMetadata } from './metadata.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import { validatePodSpec } from './pod-spec.ts';
import {
  applyRules,
  atLeastZero,
  atMostHundredPercent,
  checkImmutable,
  countOrPercent,
  oneOf,
  type Rule,
} from './rules.ts';

const STATEFUL_SET_CHANGEABLE = [
  'replicas',
  'ordinals',
  'template',
  'updateStrategy',
  'revisionHistoryLimit',
  'persistentVolumeClaimRetentionPolicy',
  'minReadySeconds',
];

/** Validates a pod template independent of its workload. */
export function validateTemplate(template: unknown, path: string, errors: FieldError[]): void {
  const value: JsonObject = isObject(template) ? template : {};
  validateTemplateMetadata(value, path, errors);
  const spec: JsonObject = isObject(value['spec']) ? value['spec'] : {};
  errors.push(...validatePodSpec(spec, `${path}.spec`));
  if (listAt(spec, 'ephemeralContainers').length > 0) {
    errors.push(
      forbidden(`${path}.spec.ephemeralContainers`, 'ephemeral containers not allowed in pod template'),
    );
  }
}

/** Validates a template whose pods always restart, with labels that its selector matches. */
function validateSelected(spec: JsonObject, kind: string, errors: FieldError[]): void {
  const selector = spec['selector'];
  // Upstream reports a daemon set's selector only by what it does not match.
  const isDaemonSet = kind === 'daemonset';
  if (selector === undefined) {
    if (!isDaemonSet) errors.push(required('spec.selector'));
  } else {
    const problems = validateLabelSelector(selector, 'spec.selector');
    errors.push(...problems);
    if (problems.length > 0 && !isDaemonSet)
      errors.push(invalid('spec.selector', selector, 'invalid label selector'));
    if (isObject(selector) && isEmptySelector(selector)) {
      errors.push(invalid('spec.selector', selector, `empty selector is invalid for ${kind}`));
    }
  }
  const labels = at(spec, 'template', 'metadata', 'labels');
  const isReadable = validateLabelSelector(selector, '').length === 0;
  const matches =
    isObject(selector) &&
    selectorMatches(selector, (isObject(labels) ? labels : {}) as Record<string, string>);
  // An absent selector selects nothing, an empty one everything.
  if (isReadable && !matches) {
    errors.push(
      invalid('spec.template.metadata.labels', labels ?? {}, '`selector` does not match template `labels`'),
    );
  }
  validateTemplate(spec['template'], 'spec.template', errors);
  const policy = at(spec, 'template', 'spec', 'restartPolicy');
  if (policy !== 'Always') {
    errors.push(notSupported('spec.template.spec.restartPolicy', policy ?? '', ['Always']));
  }
  if (at(spec, 'template', 'spec', 'activeDeadlineSeconds') !== undefined) {
    errors.push(
      forbidden(
        'spec.template.spec.activeDeadlineSeconds',
        'activeDeadlineSeconds in ReplicaSet is not Supported',
      ),
    );
  }
}

function isEmptySelector(selector: JsonObject): boolean {
  const labels = selector['matchLabels'];
  return (
    (!isObject(labels) || Object.keys(labels).length === 0) &&
    listAt(selector, 'matchExpressions').length === 0
  );
}

const specOf = (object: ApiObject): JsonObject => (isObject(object['spec']) ? object['spec'] : {});

const COUNTS: readonly Rule[] = [
  'replicas',
  'minReadySeconds',
  'revisionHistoryLimit',
  'progressDeadlineSeconds',
].map((field) => [field, atLeastZero] as const);

const amount = (value: unknown): number =>
  typeof value === 'number' ? value : Number(/^[0-9]+/.exec(String(value ?? '0'))?.[0] ?? 0);

export function validateReplicaSet(set: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec = specOf(set);
  applyRules(spec, COUNTS, 'spec', errors);
  if (spec['template'] === undefined) errors.push(required('spec.template'));
  validateSelected(spec, 'deployment', errors);
  if (before) checkImmutable(set, before, ['spec.selector'], errors);
  return errors;
}

export function validateDeployment(deployment: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec = specOf(deployment);
  applyRules(spec, COUNTS, 'spec', errors);
  validateSelected(spec, 'deployment', errors);
  const strategy = isObject(spec['strategy']) ? spec['strategy'] : {};
  const rolling = strategy['rollingUpdate'];
  switch (strategy['type']) {
    case 'Recreate':
      if (rolling !== undefined) {
        errors.push(
          forbidden('spec.strategy.rollingUpdate', "may not be specified when strategy `type` is 'Recreate'"),
        );
      }
      break;
    case 'RollingUpdate':
      if (isObject(rolling)) validateRolling(rolling, 'spec.strategy.rollingUpdate', errors);
      break;
    default:
      errors.push(notSupported('spec.strategy', strategy, ['Recreate', 'RollingUpdate']));
  }
  const deadline = spec['progressDeadlineSeconds'];
  if (typeof deadline === 'number' && deadline <= Number(spec['minReadySeconds'] ?? 0)) {
    errors.push(invalid('spec.progressDeadlineSeconds', deadline, 'must be greater than minReadySeconds'));
  }
  if (before) checkImmutable(deployment, before, ['spec.selector'], errors);
  return errors;
}

const ROLLING: readonly Rule[] = [
  ['maxUnavailable', countOrPercent, atMostHundredPercent],
  ['maxSurge', countOrPercent],
];

function validateRolling(rolling: JsonObject, path: string, errors: FieldError[]): void {
  applyRules(rolling, ROLLING, path, errors);
  if (amount(rolling['maxUnavailable']) === 0 && amount(rolling['maxSurge']) === 0) {
    errors.push(
      invalid(`${path}.maxUnavailable`, rolling['maxUnavailable'] ?? 0, 'may not be 0 when `maxSurge` is 0'),
    );
  }
}

export function validateDaemonSet(set: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec = specOf(set);
  applyRules(spec, COUNTS, 'spec', errors);
  validateSelected(spec, 'daemonset', errors);
  const strategy = isObject(spec['updateStrategy']) ? spec['updateStrategy'] : {};
  const rolling = strategy['rollingUpdate'];
  const path = 'spec.updateStrategy.rollingUpdate';
  if (strategy['type'] === 'RollingUpdate') {
    if (!isObject(rolling)) errors.push(required(path));
    else {
      applyRules(rolling, [...ROLLING, ['maxSurge', atMostHundredPercent]], path, errors);
      const both = [rolling['maxUnavailable'], rolling['maxSurge']].map(amount);
      if (both.every((value) => value > 0)) {
        errors.push(
          invalid(`${path}.maxSurge`, rolling['maxSurge'], 'may not be set when maxUnavailable is non-zero'),
        );
      } else if (both.every((value) => value === 0)) {
        errors.push(required(`${path}.maxUnavailable`, 'cannot be 0 when maxSurge is 0'));
      }
    }
  } else if (strategy['type'] !== 'OnDelete') {
    errors.push(notSupported('spec.updateStrategy', strategy, ['RollingUpdate', 'OnDelete']));
  }
  if (before) checkImmutable(set, before, ['spec.selector'], errors);
  return errors;
}

const STATEFUL_RULES: readonly Rule[] = [
  ['replicas', atLeastZero],
  ['minReadySeconds', atLeastZero],
  [
    'podManagementPolicy',
    (value, path, errors) => {
      if (value !== 'OrderedReady' && value !== 'Parallel') {
        errors.push(invalid(path, value, "must be 'OrderedReady' or 'Parallel'"));
      }
    },
  ],
  ['ordinals.start', atLeastZero],
  ['persistentVolumeClaimRetentionPolicy.whenDeleted', oneOf('Retain', 'Delete')],
  ['persistentVolumeClaimRetentionPolicy.whenScaled', oneOf('Retain', 'Delete')],
];

export function validateStatefulSet(set: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec = specOf(set);
  applyRules(spec, STATEFUL_RULES, 'spec', errors);
  const strategy = isObject(spec['updateStrategy']) ? spec['updateStrategy'] : {};
  const rolling = strategy['rollingUpdate'];
  const path = 'spec.updateStrategy.rollingUpdate';
  if (strategy['type'] === 'OnDelete') {
    if (rolling !== undefined) {
      errors.push(invalid(path, rolling, "only allowed for updateStrategy 'RollingUpdate'"));
    }
  } else if (strategy['type'] === 'RollingUpdate') {
    if (isObject(rolling)) {
      applyRules(
        rolling,
        [
          ['partition', atLeastZero],
          ['maxUnavailable', countOrPercent, atMostHundredPercent],
        ],
        path,
        errors,
      );
      if (rolling['maxUnavailable'] !== undefined && amount(rolling['maxUnavailable']) === 0) {
        errors.push(invalid(`${path}.maxUnavailable`, rolling['maxUnavailable'], 'cannot be 0'));
      }
    }
  } else {
    errors.push(
      strategy['type']
        ? invalid('spec.updateStrategy', strategy, "must be 'RollingUpdate' or 'OnDelete'")
        : required('spec.updateStrategy'),
    );
  }
  const service = spec['serviceName'];
  if (!before && typeof service === 'string' && service !== '') {
    for (const problem of nameProblems(service, 'label1035'))
      errors.push(invalid('spec.serviceName', service, problem));
  }
  validateSelected(withClaims(spec), 'statefulset', errors);
  if (before) return [...errors, ...validateStatefulSetChange(set, before)];
  // Host names of the pods are formed from it.
  const { name = '' } = set.metadata;
  if (name.includes('.')) errors.push(invalid('metadata.name', name, 'must not contain dots'));
  if (name.length > 63) errors.push(invalid('metadata.name', name, 'must be no more than 63 characters'));
  listAt(spec, 'volumeClaimTemplates').forEach((template, i) => {
    validateClaimSpec(template['spec'], `spec.volumeClaimTemplates[${i}].spec`, errors);
  });
  return errors;
}

/** Returns the spec with a volume in its template for each claim template, so that containers may mount them. */
function withClaims(spec: JsonObject): JsonObject {
  const names = new Set(
    listAt(spec, 'volumeClaimTemplates').map((claim) => String(at(claim, 'metadata', 'name') ?? '')),
  );
  const claims = [...names].map((name): JsonObject => ({ name, persistentVolumeClaim: { claimName: name } }));
  const template: JsonObject = isObject(spec['template']) ? spec['template'] : {};
  const pod: JsonObject = isObject(template['spec']) ? template['spec'] : {};
  const others = listAt(pod, 'volumes').filter((volume) => !names.has(String(volume['name'])));
  return { ...spec, template: { ...template, spec: { ...pod, volumes: [...claims, ...others] } } };
}

function validateStatefulSetChange(set: ApiObject, before: ApiObject): FieldError[] {
  const fixed = (one: ApiObject) => {
    const rest: JsonObject = { ...specOf(one) };
    for (const field of STATEFUL_SET_CHANGEABLE) delete rest[field];
    return rest;
  };
  if (equal(fixed(set), fixed(before))) return [];
  return [
    forbidden(
      'spec',
      "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
    ),
  ];
}

export function validateReplicationController(controller: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const spec = specOf(controller);
  applyRules(spec, COUNTS, 'spec', errors);
  const selector = isObject(spec['selector']) ? spec['selector'] : {};
  if (Object.keys(selector).length === 0) errors.push(required('spec.selector'));
  if (!isObject(spec['template'])) {
    errors.push(required('spec.template'));
    return errors;
  }
  const labels = at(spec, 'template', 'metadata', 'labels');
  const own = isObject(labels) ? labels : {};
  if (Object.entries(selector).some(([key, value]) => own[key] !== value)) {
    errors.push(invalid('spec.template.metadata.labels', own, '`selector` does not match template `labels`'));
  }
  validateTemplate(spec['template'], 'spec.template', errors);
  const policy = at(spec, 'template', 'spec', 'restartPolicy');
  if (policy !== 'Always') {
    errors.push(notSupported('spec.template.spec.restartPolicy', policy ?? '', ['Always']));
  }
  if (at(spec, 'template', 'spec', 'activeDeadlineSeconds') !== undefined) {
    errors.push(
      forbidden(
        'spec.template.spec.activeDeadlineSeconds',
        'activeDeadlineSeconds in ReplicationController is not Supported',
      ),
    );
  }
  return errors;
}

export function validatePodTemplate(template: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  validateTemplate(template['template'], 'template', errors);
  return errors;
}

export function validateControllerRevision(revision: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const { data } = revision;
  if (!before && (data === undefined || data === null)) errors.push(required('data', 'data is mandatory'));
  else if (!before && !isObject(data)) errors.push(required('data', 'data must be a valid JSON object'));
  if (Number(revision['revision'] ?? 0) < 0) {
    errors.push(invalid('revision', revision['revision'], 'must be greater than or equal to 0'));
  }
  if (before) checkImmutable(revision, before, ['data'], errors);
  return errors;
}
