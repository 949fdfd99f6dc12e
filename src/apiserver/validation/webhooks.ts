import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems, validateLabelSelector } from './names.ts';

const OPERATIONS = ['*', 'CONNECT', 'CREATE', 'DELETE', 'UPDATE'];
const MAX_TIMEOUT_SECONDS = 30;

function validateClient(client: JsonObject, path: string, errors: FieldError[]): void {
  const { url, service } = client;
  if ((url === undefined) === (service === undefined)) {
    errors.push(required(path, 'exactly one of url or service is required'));
    return;
  }
  if (typeof url === 'string') validateUrl(url, `${path}.url`, errors);
  if (!isObject(service)) return;
  // Upstream passes the two in the wrong order, so that each is reported with the other's name.
  if (!service['namespace']) errors.push(required(`${path}.service.name`, 'service name is required'));
  if (!service['name']) {
    errors.push(required(`${path}.service.namespace`, 'service namespace is required'));
  }
  const where = service['path'];
  if (typeof where === 'string') {
    if (where === '') {
      // An empty path means "/".
    } else if (!where.startsWith('/')) {
      errors.push(invalid(`${path}.service.path`, where, "must start with a '/'"));
    } else {
      const parts = where.slice(1).split('/');
      parts.forEach((part, i) => {
        if (part === '' && i < parts.length - 1) {
          errors.push(invalid(`${path}.service.path`, where, `segment[${i}] may not be empty`));
        }
        for (const problem of part === '' ? [] : nameProblems(part, 'subdomain')) {
          errors.push(invalid(`${path}.service.path`, where, `segment[${i}]: ${problem}`));
        }
      });
    }
  }
  const port = Number(service['port'] ?? 443);
  if (port < 1 || port > 65535) {
    errors.push(
      invalid(`${path}.service.port`, port, 'port is not valid: must be between 1 and 65535, inclusive'),
    );
  }
}

function validateUrl(text: string, path: string, errors: FieldError[]): void {
  const form = '; desired format: https://host[/path]';
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    // Go parses a word without a scheme as a path.
    if (text === '' || /^[^:]*$/.test(text)) {
      errors.push(invalid(path, '', `'https' is the only allowed URL scheme${form}`));
      errors.push(invalid(path, '', `host must be specified${form}`));
    } else errors.push(required(path, 'url must be a valid URL'));
    return;
  }
  if (url.protocol !== 'https:')
    errors.push(
      invalid(path, url.protocol.replace(':', ''), `'https' is the only allowed URL scheme${form}`),
    );
  if (url.host === '') errors.push(invalid(path, '', `host must be specified${form}`));
  if (url.username !== '')
    errors.push(invalid(path, url.username, 'user information is not permitted in the URL'));
  if (url.hash !== '') errors.push(invalid(path, url.hash, 'fragments are not permitted in the URL'));
  if (url.search !== '')
    errors.push(invalid(path, url.search, 'query parameters are not permitted in the URL'));
}

/** Validates a RuleWithOperations. */
export function validateRule(rule: JsonObject, path: string, errors: FieldError[]): void {
  const words = (field: string) => listAt(rule, field).map(String);
  const operations = words('operations');
  if (operations.length === 0) errors.push(required(`${path}.operations`));
  if (operations.length > 1 && operations.includes('*')) {
    errors.push(
      invalid(`${path}.operations`, operations, "if '*' is present, must not specify other operations"),
    );
  }
  operations.forEach((operation, i) => {
    if (!OPERATIONS.includes(operation)) {
      errors.push(notSupported(`${path}.operations[${i}]`, operation, OPERATIONS));
    }
  });
  for (const field of ['apiGroups', 'apiVersions', 'resources']) {
    const values = words(field);
    if (values.length === 0) errors.push(required(`${path}.${field}`));
    if (field !== 'resources' && values.length > 1 && values.includes('*')) {
      errors.push(
        invalid(
          `${path}.${field}`,
          values,
          `if '*' is present, must not specify other ${field === 'apiGroups' ? 'API groups' : 'API versions'}`,
        ),
      );
    }
    values.forEach((value, i) => {
      if (value === '' && field !== 'apiGroups') errors.push(required(`${path}.${field}[${i}]`));
    });
  }
  validateResources(words('resources'), `${path}.resources`, errors);
  const scope = rule['scope'];
  if (scope !== undefined && !['*', 'Cluster', 'Namespaced'].includes(String(scope))) {
    errors.push(notSupported(`${path}.scope`, scope, ['*', 'Cluster', 'Namespaced']));
  }
}

/** Checks "*", "pods", "pods/status", "*\/scale", "pods/*": a wildcard must not include another entry. */
function validateResources(resources: readonly string[], path: string, errors: FieldError[]): void {
  const parts = resources.map((resource) => resource.split('/', 2) as [string, string?]);
  resources.forEach((resource, i) => {
    const [name, part] = parts[i] ?? ['', undefined];
    if (
      part !== undefined &&
      parts.slice(0, i).some(([other, sub]) => sub !== undefined && other === name && sub === '*')
    ) {
      errors.push(
        invalid(`${path}[${i}]`, resource, `if '${name}/*' is present, must not specify ${resource}`),
      );
    }
    if (
      part !== undefined &&
      parts.slice(0, i).some(([other, sub]) => sub !== undefined && other === '*' && sub === part)
    ) {
      errors.push(
        invalid(`${path}[${i}]`, resource, `if '*/${part}' is present, must not specify ${resource}`),
      );
    }
  });
  if (resources.length > 1 && resources.includes('*/*')) {
    errors.push(invalid(path, resources, "if '*/*' is present, must not specify other resources"));
  }
  if (resources.includes('*') && parts.some(([name, part]) => name !== '*' && part === undefined)) {
    errors.push(
      invalid(path, resources, "if '*' is present, must not specify other resources without subresources"),
    );
  }
}

/** Validates the webhooks of a configuration. */
export function validateWebhooks(configuration: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const names = new Set<unknown>();
  listAt(configuration, 'webhooks').forEach((hook, i) => {
    const path = `webhooks[${i}]`;
    const name = String(hook['name'] ?? '');
    for (const problem of name === '' ? [] : nameProblems(name, 'subdomain')) {
      errors.push(invalid(`${path}.name`, name, problem));
    }
    if (name === '') errors.push(required(`${path}.name`));
    else if (nameProblems(name, 'subdomain').length === 0 && name.split('.').length < 3) {
      errors.push(
        invalid(`${path}.name`, name, 'should be a domain with at least three segments separated by dots'),
      );
    }
    if (names.has(name)) errors.push(duplicate(`${path}.name`, name));
    names.add(name);
    validateReviewVersions(
      listAt(hook, 'admissionReviewVersions').map(String),
      `${path}.admissionReviewVersions`,
      errors,
    );
    listAt(hook, 'rules').forEach((rule, j) => {
      validateRule(rule, `${path}.rules[${j}]`, errors);
    });
    checkWord(hook, 'failurePolicy', ['Fail', 'Ignore'], path, errors);
    checkWord(hook, 'matchPolicy', ['Equivalent', 'Exact'], path, errors);
    checkWord(hook, 'reinvocationPolicy', ['IfNeeded', 'Never'], path, errors);
    const effects = ['None', 'NoneOnDryRun'];
    if (hook['sideEffects'] === undefined) {
      errors.push(required(`${path}.sideEffects`, `must specify one of ${effects.join(', ')}`));
    } else checkWord(hook, 'sideEffects', effects, path, errors);
    const seconds = Number(hook['timeoutSeconds'] ?? 10);
    if (seconds < 1 || seconds > MAX_TIMEOUT_SECONDS) {
      errors.push(
        invalid(`${path}.timeoutSeconds`, seconds, 'the timeout value must be between 1 and 30 seconds'),
      );
    }
    for (const field of ['namespaceSelector', 'objectSelector']) {
      errors.push(...validateLabelSelector(hook[field], `${path}.${field}`));
    }
    validateClient(
      isObject(hook['clientConfig']) ? hook['clientConfig'] : {},
      `${path}.clientConfig`,
      errors,
    );
  });
  return errors;
}

function checkWord(
  hook: JsonObject,
  field: string,
  words: readonly string[],
  path: string,
  errors: FieldError[],
): void {
  const value = hook[field];
  if (value !== undefined && !words.includes(String(value)))
    errors.push(notSupported(`${path}.${field}`, value, words));
}

function validateReviewVersions(versions: readonly string[], path: string, errors: FieldError[]): void {
  if (versions.length === 0) {
    errors.push(required(path, 'must specify one of v1, v1beta1'));
    return;
  }
  versions.forEach((version, i) => {
    if (versions.indexOf(version) < i) errors.push(invalid(`${path}[${i}]`, version, 'duplicate version'));
    for (const problem of nameProblems(version, 'label1035'))
      errors.push(invalid(`${path}[${i}]`, version, problem));
  });
  if (!versions.some((version) => version === 'v1' || version === 'v1beta1')) {
    errors.push(invalid(path, versions, 'must include at least one of v1, v1beta1'));
  }
}
