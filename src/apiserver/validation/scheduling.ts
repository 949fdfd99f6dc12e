import { isObject, type JsonObject, listAt, valueText } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { labelValueProblems, nameProblems, validateLabelSelector, validateLabels } from './names.ts';
import { between, type Check, someOf } from './rules.ts';

const EFFECTS = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'];
const WEIGHT = between(1, 100, 'must be in the range 1-100', true);

const qualified = (value: unknown, path: string, errors: FieldError[]) => {
  for (const problem of nameProblems(String(value ?? ''), 'qualified'))
    errors.push(invalid(path, value ?? '', problem));
};

/** Validates one requirement of a node selector. */
function validateRequirement(
  requirement: JsonObject,
  path: string,
  errors: FieldError[],
  strictValues: boolean,
): void {
  const values = listAt(requirement, 'values').map(String);
  const operator = requirement['operator'];
  switch (operator) {
    case 'In':
    case 'NotIn':
      if (values.length === 0) {
        errors.push(required(`${path}.values`, "must be specified when `operator` is 'In' or 'NotIn'"));
      }
      break;
    case 'Exists':
    case 'DoesNotExist':
      if (values.length > 0) {
        errors.push(
          forbidden(`${path}.values`, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
        );
      }
      break;
    case 'Gt':
    case 'Lt':
      if (values.length !== 1) {
        errors.push(
          required(`${path}.values`, "must be specified single value when `operator` is 'Lt' or 'Gt'"),
        );
      }
      break;
    default:
      errors.push(invalid(`${path}.operator`, operator ?? '', 'not a valid selector operator'));
  }
  qualified(requirement['key'], `${path}.key`, errors);
  values.forEach((value, i) => {
    if (operator === 'Gt' || operator === 'Lt' || !strictValues) return;
    for (const problem of labelValueProblems(value))
      errors.push(invalid(`${path}.values[${i}]`, value, problem));
  });
}

function validateFieldRequirement(requirement: JsonObject, path: string, errors: FieldError[]): void {
  const values = listAt(requirement, 'values').map(String);
  const { operator, key } = requirement;
  if (operator === 'In' || operator === 'NotIn') {
    if (values.length !== 1) {
      errors.push(
        required(
          `${path}.values`,
          "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
      );
    }
  } else errors.push(invalid(`${path}.operator`, operator ?? '', 'not a valid selector operator'));
  if (key !== 'metadata.name') {
    errors.push(invalid(`${path}.key`, key ?? '', 'not a valid field selector key'));
    return;
  }
  values.forEach((value, i) => {
    for (const problem of nameProblems(value, 'subdomain')) {
      errors.push(invalid(`${path}.values[${i}]`, value, problem));
    }
  });
}

/** Validates one term of a node selector. */
function validateNodeSelectorTerm(
  term: JsonObject,
  path: string,
  errors: FieldError[],
  /** `strictValues` false: values that no label has are warned of only. */
  { strictValues }: { readonly strictValues: boolean } = { strictValues: true },
): void {
  listAt(term, 'matchExpressions').forEach((one, i) => {
    validateRequirement(one, `${path}.matchExpressions[${i}]`, errors, strictValues);
  });
  listAt(term, 'matchFields').forEach((one, i) => {
    validateFieldRequirement(one, `${path}.matchFields[${i}]`, errors);
  });
}

/** Validates a node selector: at least one term. */
export function validateNodeSelector(selector: unknown, path: string, errors: FieldError[]): void {
  if (!isObject(selector)) return;
  const terms = listAt(selector, 'nodeSelectorTerms');
  if (terms.length === 0) {
    errors.push(required(`${path}.nodeSelectorTerms`, 'must have at least one node selector term'));
  }
  terms.forEach((term, i) => {
    validateNodeSelectorTerm(term, `${path}.nodeSelectorTerms[${i}]`, errors);
  });
}

function validatePodTerm(term: JsonObject, path: string, errors: FieldError[]): void {
  errors.push(
    ...validateLabelSelector(term['labelSelector'], `${path}.labelSelector`),
    ...validateLabelSelector(term['namespaceSelector'], `${path}.namespaceSelector`),
  );
  for (const namespace of listAt(term, 'namespaces')) {
    // Upstream omits the index here.
    for (const problem of nameProblems(String(namespace), 'label')) {
      errors.push(invalid(`${path}.namespace`, namespace, problem));
    }
  }
  const key = term['topologyKey'];
  if (!key) errors.push(required(`${path}.topologyKey`, 'can not be empty'));
  qualified(key, `${path}.topologyKey`, errors);
  for (const field of ['matchLabelKeys', 'mismatchLabelKeys']) {
    if (listAt(term, field).length > 0 && !isObject(term['labelSelector'])) {
      errors.push(forbidden(`${path}.${field}`, 'must not be specified when labelSelector is not set'));
    }
    listAt(term, field).forEach((one, i) => {
      qualified(one, `${path}.${field}[${i}]`, errors);
    });
  }
}

export const REQUIRED_TERMS = 'requiredDuringSchedulingIgnoredDuringExecution';
export const PREFERRED_TERMS = 'preferredDuringSchedulingIgnoredDuringExecution';

/** Validates a pod's affinity. */
export const affinity: Check = (value, path, errors) => {
  if (!isObject(value)) return;
  const node = value['nodeAffinity'];
  if (isObject(node)) {
    validateNodeSelector(node[REQUIRED_TERMS], `${path}.nodeAffinity.${REQUIRED_TERMS}`, errors);
    listAt(node, PREFERRED_TERMS).forEach((term, i) => {
      const field = `${path}.nodeAffinity.${PREFERRED_TERMS}[${i}]`;
      WEIGHT(term['weight'], `${field}.weight`, errors, term, term);
      if (isObject(term['preference']))
        validateNodeSelectorTerm(term['preference'], `${field}.preference`, errors, { strictValues: false });
    });
  }
  for (const kind of ['podAffinity', 'podAntiAffinity']) {
    const pods = value[kind];
    if (!isObject(pods)) continue;
    listAt(pods, REQUIRED_TERMS).forEach((term, i) => {
      validatePodTerm(term, `${path}.${kind}.${REQUIRED_TERMS}[${i}]`, errors);
    });
    listAt(pods, PREFERRED_TERMS).forEach((term, i) => {
      const field = `${path}.${kind}.${PREFERRED_TERMS}[${i}]`;
      WEIGHT(term['weight'], `${field}.weight`, errors, term, term);
      const inner = isObject(term['podAffinityTerm']) ? term['podAffinityTerm'] : {};
      validatePodTerm(inner, `${field}.podAffinityTerm`, errors);
    });
  }
};

/** Validates tolerations. */
export const tolerations: Check = (value, path, errors) => {
  (Array.isArray(value) ? value : []).forEach((one, i) => {
    const toleration = one as JsonObject;
    const field = `${path}[${i}]`;
    const { key, operator = '', value: wanted, effect, tolerationSeconds } = toleration;
    if (key) qualified(key, `${field}.key`, errors);
    else if (operator !== 'Exists') {
      errors.push(
        invalid(
          `${field}.operator`,
          operator,
          'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        ),
      );
    }
    if (tolerationSeconds !== undefined && effect !== 'NoExecute') {
      errors.push(
        invalid(
          `${field}.effect`,
          effect ?? '',
          "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ),
      );
    }
    if (operator === 'Equal' || operator === '') {
      const problem = labelValueProblems(String(wanted ?? ''))[0];
      if (problem) errors.push(invalid(`${field}.operator`, wanted, problem));
    } else if (operator === 'Exists') {
      if (wanted) {
        errors.push(
          invalid(`${field}.operator`, toleration, "value must be empty when `operator` is 'Exists'"),
        );
      }
    } else errors.push(notSupported(`${field}.operator`, operator, ['Equal', 'Exists']));
    if (effect && !EFFECTS.includes(String(effect)))
      errors.push(notSupported(`${field}.effect`, effect, EFFECTS));
  });
};

/** Validates the taints of a node; upstream reports them at `path`. */
export function validateTaints(taints: readonly JsonObject[], path: string, errors: FieldError[]): void {
  const seen = new Set<string>();
  taints.forEach((taint, i) => {
    const field = `${path}[${i}]`;
    qualified(taint['key'], `${field}.key`, errors);
    const problems = labelValueProblems(String(taint['value'] ?? ''));
    if (problems.length > 0) errors.push(invalid(`${field}.value`, taint['value'], problems.join(';')));
    const effect = taint['effect'];
    if (!effect) errors.push(required(`${field}.effect`));
    else if (!EFFECTS.includes(String(effect))) errors.push(notSupported(`${field}.effect`, effect, EFFECTS));
    const key = `${String(effect)}/${String(taint['key'])}`;
    if (seen.has(key))
      errors.push({
        ...duplicate(field, taint),
        message: `Duplicate value: ${JSON.stringify(taint)}: taints must be unique by key and effect pair`,
      });
    seen.add(key);
  });
}

/** Validates topology spread constraints. */
export const spread: Check = (value, path, errors) => {
  const constraints = (Array.isArray(value) ? value : []) as JsonObject[];
  constraints.forEach((one, i) => {
    const field = `${path}[${i}]`;
    const when = one['whenUnsatisfiable'] ?? '';
    if (Number(one['maxSkew'] ?? 0) <= 0) {
      errors.push(invalid(`${field}.maxSkew`, one['maxSkew'] ?? 0, 'must be greater than zero'));
    }
    if (!one['topologyKey']) errors.push(required(`${field}.topologyKey`, 'can not be empty'));
    someOf('DoNotSchedule', 'ScheduleAnyway')(when, `${field}.whenUnsatisfiable`, errors, one, one);
    const repeated = constraints
      .slice(i + 1)
      .some(
        (other) => other['topologyKey'] === one['topologyKey'] && (other['whenUnsatisfiable'] ?? '') === when,
      );
    if (repeated) {
      errors.push(duplicate(`${field}.{topologyKey, whenUnsatisfiable}`, `{${one['topologyKey']}, ${when}}`));
    }
    const domains = one['minDomains'];
    if (typeof domains === 'number') {
      if (domains <= 0) errors.push(invalid(`${field}.minDomains`, domains, 'must be greater than zero'));
      if (when !== 'DoNotSchedule') {
        errors.push(
          invalid(
            `${field}.minDomains`,
            domains,
            `can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ${when}`,
          ),
        );
      }
    }
    for (const name of ['nodeAffinityPolicy', 'nodeTaintsPolicy']) {
      const policy = one[name];
      if (policy !== undefined && policy !== 'Ignore' && policy !== 'Honor') {
        errors.push(notSupported(`${field}.${name}`, policy, ['Ignore', 'Honor']));
      }
    }
    errors.push(...validateLabelSelector(one['labelSelector'], `${field}.labelSelector`));
    if (listAt(one, 'matchLabelKeys').length > 0 && !isObject(one['labelSelector'])) {
      errors.push(
        forbidden(`${field}.matchLabelKeys`, 'must not be specified when labelSelector is not set'),
      );
    }
  });
};

/** Validates the node labels that a pod requires. */
export const nodeSelector: Check = (value, path, errors) => {
  errors.push(...validateLabels(value, path));
};

/** Reports whether tolerations are the old ones plus others, or the same with a changed time. */
export function onlyAddsTolerations(now: readonly JsonObject[], old: readonly JsonObject[]): boolean {
  const plain = ({ tolerationSeconds: _seconds, ...rest }: JsonObject) => valueText(rest);
  const known = new Set(now.map(plain));
  return old.every((one) => known.has(plain(one)));
}
