import { selectorMatches } from '../label-selector.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, invalid, notSupported, required, tooMany } from '../status-error.ts';
import { cronProblem, timeZoneProblem } from './cron.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import { applyRules, atLeastZero, checkImmutable, named, oneOf, type Rule } from './rules.ts';
import { validateTemplate } from './workloads.ts';

const MAX_PARALLELISM = 100_000;
const MAX_COMPLETIONS = 100_000;
const MAX_PARALLELISM_OF_MANY = 10_000;
const MAX_RULES = 20;
const MAX_EXIT_CODES = 255;

const RULES: readonly Rule[] = [
  ['parallelism', atLeastZero],
  ['completions', atLeastZero],
  ['activeDeadlineSeconds', atLeastZero],
  ['backoffLimit', atLeastZero],
  ['ttlSecondsAfterFinished', atLeastZero],
  ['backoffLimitPerIndex', atLeastZero],
  ['maxFailedIndexes', atLeastZero],
  ['managedBy', named('domainPath')],
  ['completionMode', oneOf('NonIndexed', 'Indexed')],
];

/** Validates a Job's spec by the rules that also apply to a CronJob's template. */
function validateSpec(spec: JsonObject, path: string, errors: FieldError[]): void {
  applyRules(spec, RULES, path, errors);
  validateIndexes(spec, path, errors);
  const failure = spec['podFailurePolicy'];
  if (isObject(failure)) validateFailurePolicy(spec, failure, `${path}.podFailurePolicy`, errors);
  const success = spec['successPolicy'];
  if (isObject(success)) {
    if (spec['completionMode'] === 'Indexed') {
      validateSuccessPolicy(spec, success, `${path}.successPolicy`, errors);
    } else errors.push(invalid(`${path}.successPolicy`, success, 'requires indexed completion mode'));
  }
  const replacement = spec['podReplacementPolicy'];
  const allowed = isObject(failure) ? ['Failed'] : ['Failed', 'TerminatingOrFailed'];
  if (replacement !== undefined && !allowed.includes(String(replacement))) {
    errors.push(notSupported(`${path}.podReplacementPolicy`, replacement, allowed));
  }
  validateTemplate(spec['template'], `${path}.template`, errors);
  const policy = at(spec, 'template', 'spec', 'restartPolicy') ?? '';
  const field = `${path}.template.spec.restartPolicy`;
  if (policy === 'Always' || policy === '') {
    errors.push(required(field, 'valid values: "OnFailure", "Never"'));
  } else if (policy !== 'OnFailure' && policy !== 'Never') {
    errors.push(notSupported(field, policy, ['OnFailure', 'Never']));
  } else if (isObject(failure) && policy !== 'Never') {
    errors.push(invalid(field, policy, 'only "Never" is supported when podFailurePolicy is specified'));
  }
}

function validateIndexes(spec: JsonObject, path: string, errors: FieldError[]): void {
  const { completions, parallelism, maxFailedIndexes, backoffLimitPerIndex } = spec;
  if (maxFailedIndexes !== undefined && backoffLimitPerIndex === undefined) {
    errors.push(required(`${path}.backoffLimitPerIndex`, 'when maxFailedIndexes is specified'));
  }
  if (spec['completionMode'] === 'NonIndexed') {
    for (const field of ['backoffLimitPerIndex', 'maxFailedIndexes']) {
      if (spec[field] !== undefined) {
        errors.push(invalid(`${path}.${field}`, spec[field], 'requires indexed completion mode'));
      }
    }
  }
  if (spec['completionMode'] !== 'Indexed') return;
  if (completions === undefined)
    errors.push(required(`${path}.completions`, 'when completion mode is Indexed'));
  if (Number(parallelism ?? 0) > MAX_PARALLELISM) {
    errors.push(
      invalid(
        `${path}.parallelism`,
        parallelism,
        `must be less than or equal to ${MAX_PARALLELISM} when completion mode is Indexed`,
      ),
    );
  }
  if (typeof maxFailedIndexes === 'number') {
    if (typeof completions === 'number' && maxFailedIndexes > completions) {
      errors.push(
        invalid(`${path}.maxFailedIndexes`, maxFailedIndexes, 'must be less than or equal to completions'),
      );
    }
    if (maxFailedIndexes > MAX_COMPLETIONS) {
      errors.push(
        invalid(
          `${path}.maxFailedIndexes`,
          maxFailedIndexes,
          `must be less than or equal to ${MAX_COMPLETIONS}`,
        ),
      );
    }
  }
  if (Number(completions ?? 0) <= MAX_COMPLETIONS || backoffLimitPerIndex === undefined) return;
  if (maxFailedIndexes === undefined) {
    errors.push(
      required(`${path}.maxFailedIndexes`, `must be specified when completions is above ${MAX_COMPLETIONS}`),
    );
  }
  for (const field of ['parallelism', 'maxFailedIndexes']) {
    if (Number(spec[field] ?? 0) > MAX_PARALLELISM_OF_MANY) {
      errors.push(
        invalid(
          `${path}.${field}`,
          spec[field],
          `must be less than or equal to ${MAX_PARALLELISM_OF_MANY} when completions are above ${MAX_COMPLETIONS} and used with backoff limit per index`,
        ),
      );
    }
  }
}

const ACTIONS = ['Count', 'FailIndex', 'FailJob', 'Ignore'];

function validateFailurePolicy(
  spec: JsonObject,
  policy: JsonObject,
  path: string,
  errors: FieldError[],
): void {
  const rules = listAt(policy, 'rules');
  if (rules.length > MAX_RULES) errors.push(tooMany(`${path}.rules`, rules.length, MAX_RULES));
  const containers = [
    ...listAt(spec, 'template', 'spec', 'containers'),
    ...listAt(spec, 'template', 'spec', 'initContainers'),
  ].map((container) => container['name']);
  rules.forEach((rule, i) => {
    const field = `${path}.rules[${i}]`;
    const action = rule['action'] ?? '';
    if (action === '') errors.push(required(`${field}.action`, `valid values: ${JSON.stringify(ACTIONS)}`));
    else if (action === 'FailIndex') {
      if (spec['backoffLimitPerIndex'] === undefined) {
        errors.push(invalid(`${field}.action`, action, 'requires the backoffLimitPerIndex to be set'));
      }
    } else if (!ACTIONS.includes(String(action)))
      errors.push(notSupported(`${field}.action`, action, ACTIONS));
    const codes = rule['onExitCodes'];
    const conditions = listAt(rule, 'onPodConditions');
    if (isObject(codes)) validateExitCodes(codes, `${field}.onExitCodes`, containers, errors);
    conditions.forEach((condition, j) => {
      const place = `${field}.onPodConditions[${j}]`;
      for (const problem of nameProblems(String(condition['type'] ?? ''), 'qualified')) {
        errors.push(invalid(`${place}.type`, condition['type'] ?? '', problem));
      }
      const statuses = ['False', 'True', 'Unknown'];
      if (!statuses.includes(String(condition['status']))) {
        errors.push(notSupported(`${place}.status`, condition['status'], statuses));
      }
    });
    if (isObject(codes) && conditions.length > 0) {
      errors.push(invalid(field, rule, 'specifying both OnExitCodes and OnPodConditions is not supported'));
    }
    if (!isObject(codes) && conditions.length === 0) {
      errors.push(invalid(field, rule, 'specifying one of OnExitCodes and OnPodConditions is required'));
    }
  });
}

function validateExitCodes(
  codes: JsonObject,
  path: string,
  containers: readonly unknown[],
  errors: FieldError[],
): void {
  const operators = ['In', 'NotIn'];
  const { operator = '', containerName } = codes;
  if (operator === '')
    errors.push(required(`${path}.operator`, `valid values: ${JSON.stringify(operators)}`));
  else if (!operators.includes(String(operator)))
    errors.push(notSupported(`${path}.operator`, operator, operators));
  if (containerName !== undefined && !containers.includes(containerName)) {
    errors.push(
      invalid(
        `${path}.containerName`,
        containerName,
        'must be one of the container or initContainer names in the pod template',
      ),
    );
  }
  const values = listAt(codes, 'values').map(Number);
  if (values.length === 0) errors.push(invalid(`${path}.values`, values, 'at least one value is required'));
  else if (values.length > MAX_EXIT_CODES)
    errors.push(tooMany(`${path}.values`, values.length, MAX_EXIT_CODES));
  values.forEach((value, i) => {
    if (operator === 'In' && value === 0) {
      errors.push(invalid(`${path}.values[${i}]`, value, 'must not be 0 for the In operator'));
    }
    if (values.indexOf(value) < i) errors.push(duplicate(`${path}.values[${i}]`, value));
  });
  if (values.some((value, i) => i > 0 && Number(values[i - 1]) > value)) {
    errors.push(invalid(`${path}.values`, values, 'must be ordered'));
  }
}

function validateSuccessPolicy(
  spec: JsonObject,
  policy: JsonObject,
  path: string,
  errors: FieldError[],
): void {
  const rules = listAt(policy, 'rules');
  if (rules.length === 0) {
    errors.push(
      required(`${path}.rules`, 'at least one rules must be specified when the successPolicy is specified'),
    );
  }
  if (rules.length > MAX_RULES) errors.push(tooMany(`${path}.rules`, rules.length, MAX_RULES));
  const completions = Number(spec['completions'] ?? 0);
  rules.forEach((rule, i) => {
    const field = `${path}.rules[${i}]`;
    const { succeededCount, succeededIndexes } = rule;
    if (succeededCount === undefined && succeededIndexes === undefined) {
      errors.push(required(field, 'at least one of succeededCount or succeededIndexes must be specified'));
    }
    let total = Number.POSITIVE_INFINITY;
    if (typeof succeededIndexes === 'string') {
      const counted = countIndexes(succeededIndexes, completions);
      total = typeof counted === 'number' ? counted : 0;
      if (typeof counted === 'string') {
        errors.push(
          invalid(
            `${field}.succeededIndexes`,
            succeededIndexes,
            `error parsing succeededIndexes: ${counted}`,
          ),
        );
      }
    }
    if (typeof succeededCount !== 'number') return;
    atLeastZero(succeededCount, `${field}.succeededCount`, errors, rule, rule);
    if (succeededCount > completions) {
      errors.push(
        invalid(
          `${field}.succeededCount`,
          succeededCount,
          `must be less than or equal to ${completions} (the number of specified completions)`,
        ),
      );
    }
    if (succeededCount > total) {
      errors.push(
        invalid(
          `${field}.succeededCount`,
          succeededCount,
          `must be less than or equal to ${total} (the number of indexes in the specified succeededIndexes field)`,
        ),
      );
    }
  });
}

/** Returns the number of indexes below `completions` in "1,3-5"; or text that describes the error. */
function countIndexes(text: string, completions: number): number | string {
  if (text === '') return 0;
  let last = -1;
  let total = 0;
  for (const part of text.split(',')) {
    const range = /^([0-9]+)(?:-([0-9]+))?$/.exec(part);
    if (!range) return `cannot convert string to integer for index: ${JSON.stringify(part)}`;
    const first = Number(range[1]);
    const end = Number(range[2] ?? range[1]);
    if (first >= completions || end >= completions) return `too large index: ${JSON.stringify(part)}`;
    if (first <= last || (range[2] !== undefined && end <= first)) {
      return `non-increasing order, previous: ${last}, current: ${first}`;
    }
    total += end - first + 1;
    last = end;
  }
  return total;
}

export function validateJob(job: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(job['spec']) ? job['spec'] : {};
  validateSpec(spec, 'spec', errors);
  const selector = spec['selector'];
  if (!isObject(selector)) errors.push(required('spec.selector'));
  else errors.push(...validateLabelSelector(selector, 'spec.selector'));
  const labels = at(spec, 'template', 'metadata', 'labels');
  const own = (isObject(labels) ? labels : {}) as Record<string, string>;
  if (!isObject(selector) || !selectorMatches(selector, own)) {
    errors.push(invalid('spec.template.metadata.labels', own, '`selector` does not match template `labels`'));
  }
  if (before) {
    if (spec['manualSelector'] !== true && isObject(selector)) checkGeneratedLabels(own, errors);
    validateUpdate(job, before, spec, errors);
    return errors;
  }
  if (spec['manualSelector'] !== true) validateGenerated(job, selector, own, errors);
  const completions = spec['completions'];
  if (spec['completionMode'] === 'Indexed' && typeof completions === 'number' && completions > 0) {
    const host = `${job.metadata.name ?? ''}-${completions - 1}`;
    if (nameProblems(host, 'label').length > 0) {
      errors.push(
        invalid(
          'metadata.name',
          job.metadata.name,
          `will not able to create pod with invalid DNS label: ${host}`,
        ),
      );
    }
  }
  return errors;
}

/** Labels that the server has set on the pods must remain. */
function checkGeneratedLabels(labels: Record<string, string>, errors: FieldError[]): void {
  for (const name of ['controller-uid', 'job-name']) {
    for (const label of [name, `batch.kubernetes.io/${name}`]) {
      if (labels[label] === undefined) errors.push(required(`spec.template.metadata.labels[${label}]`));
    }
  }
}

/** Checks that a generated selector selects only by the Job's UID. */
function validateGenerated(
  job: ApiObject,
  selector: unknown,
  labels: Record<string, string>,
  errors: FieldError[],
): void {
  const uid = job.metadata.uid ?? '';
  const wanted = { matchLabels: { 'batch.kubernetes.io/controller-uid': uid } };
  const old = { matchLabels: { 'controller-uid': uid } };
  if (labels['controller-uid'] !== uid) {
    errors.push(invalid('spec.template.metadata.labels', labels, `must be '${uid}'`));
  }
  if (!equal(selector, wanted) && !equal(selector, old)) {
    errors.push(invalid('spec.selector', selector ?? null, '`selector` not auto-generated'));
  }
}

const IMMUTABLE = [
  'spec.selector',
  'spec.completionMode',
  'spec.podFailurePolicy',
  'spec.backoffLimitPerIndex',
  'spec.managedBy',
  'spec.successPolicy',
];

const SCHEDULING = ['affinity', 'nodeSelector', 'tolerations', 'schedulingGates'];

function validateUpdate(job: ApiObject, before: ApiObject, spec: JsonObject, errors: FieldError[]): void {
  checkImmutable(job, before, IMMUTABLE, errors);
  const old: JsonObject = isObject(before['spec']) ? before['spec'] : {};
  const { completions, parallelism } = spec;
  const elastic = spec['completionMode'] === 'Indexed' && completions === parallelism;
  if (!equal(completions, old['completions']) && !elastic) {
    const detail =
      spec['completionMode'] === 'Indexed'
        ? `can only be modified in tandem with spec.parallelism`
        : 'field is immutable';
    errors.push(invalid('spec.completions', completions ?? null, detail));
  }
  // A suspended Job that has not started may still change its placement.
  const movable = old['suspend'] === true && at(before, 'status', 'startTime') === undefined;
  const comparable = (one: JsonObject) => {
    const template = structuredClone(isObject(one['template']) ? one['template'] : {});
    const pod = template['spec'];
    if (movable && isObject(pod)) {
      for (const field of SCHEDULING) delete pod[field];
      for (const list of ['containers', 'initContainers']) {
        for (const container of listAt(pod, list)) delete container['resources'];
      }
      const metadata = template['metadata'];
      if (isObject(metadata)) {
        delete metadata['labels'];
        delete metadata['annotations'];
      }
    }
    return template;
  };
  if (!equal(comparable(spec), comparable(old))) {
    const [path, value] = movable
      ? ['spec.template.spec', at(spec, 'template', 'spec')]
      : ['spec.template', spec['template']];
    errors.push(invalid(path, value ?? null, 'field is immutable'));
  }
}

/** The longest name from which the names of a Job and its pods can be formed. */
const MAX_CRON_JOB_NAME = 52;

const CRON_RULES: readonly Rule[] = [
  ['startingDeadlineSeconds', atLeastZero],
  ['successfulJobsHistoryLimit', atLeastZero],
  ['failedJobsHistoryLimit', atLeastZero],
];

export function validateCronJob(job: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(job['spec']) ? job['spec'] : {};
  const schedule = String(spec['schedule'] ?? '');
  if (schedule === '') errors.push(required('spec.schedule'));
  else {
    const problem = cronProblem(schedule);
    if (problem) errors.push(invalid('spec.schedule', schedule, problem));
    if (/TZ/.test(schedule)) {
      errors.push(
        invalid(
          'spec.schedule',
          schedule,
          'cannot use TZ or CRON_TZ in schedule, use timeZone field instead',
        ),
      );
    }
  }
  applyRules(spec, CRON_RULES, 'spec', errors);
  const policies = ['Allow', 'Forbid', 'Replace'];
  const policy = spec['concurrencyPolicy'];
  if (!policy) errors.push(required('spec.concurrencyPolicy'));
  else if (!policies.includes(String(policy)))
    errors.push(notSupported('spec.concurrencyPolicy', policy, policies));
  const zone = spec['timeZone'];
  if (zone !== undefined) {
    const problem = timeZoneProblem(String(zone));
    if (problem) errors.push(invalid('spec.timeZone', zone, problem));
  }
  const template: JsonObject = isObject(spec['jobTemplate']) ? spec['jobTemplate'] : {};
  const jobSpec: JsonObject = isObject(template['spec']) ? template['spec'] : {};
  if (jobSpec['manualSelector'] === true) {
    errors.push(notSupported('spec.jobTemplate.spec.manualSelector', true, ['nil', 'false']));
  }
  validateSpec(jobSpec, 'spec.jobTemplate.spec', errors);
  const name = job.metadata.name ?? '';
  if (!before && name.length > MAX_CRON_JOB_NAME) {
    errors.push(invalid('metadata.name', name, `must be no more than ${MAX_CRON_JOB_NAME} characters`));
  }
  return errors;
}
