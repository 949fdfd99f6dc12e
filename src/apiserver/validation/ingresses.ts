import { familyOf } from '../../lib/address.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems, portNameProblems } from './names.ts';
import { applyRules, type Check, checkImmutable, mustBeNamed, named, type Rule } from './rules.ts';

const BAD_SEQUENCES = ['//', '/./', '/../', '%2f', '%2F'];
const BAD_ENDINGS = ['/..', '/.'];
const PATH_TYPES = ['Exact', 'ImplementationSpecific', 'Prefix'];
const MAX_CONTROLLER = 250;

const segment: Check = (value, path, errors) => {
  if (!value) errors.push(required(path));
  else for (const problem of nameProblems(String(value), 'path')) errors.push(invalid(path, value, problem));
};

const TYPED_REFERENCE: readonly Rule[] = [
  [
    'apiGroup',
    (value, path, errors, parent, root) => {
      if (value !== undefined) mustBeNamed('subdomain')(value, path, errors, parent, root);
    },
  ],
  ['kind', segment],
  ['name', segment],
];

function validateHost(host: string, path: string, errors: FieldError[]): void {
  const form = host.includes('*') ? 'wildcard' : 'subdomain';
  for (const problem of nameProblems(host, form)) errors.push(invalid(path, host, problem));
}

function validateBackend(backend: JsonObject, path: string, errors: FieldError[]): void {
  const { resource, service } = backend;
  if (isObject(resource) && isObject(service)) {
    errors.push(invalid(path, '', 'cannot set both resource and service backends'));
  } else if (isObject(resource)) applyRules(resource, TYPED_REFERENCE, `${path}.resource`, errors);
  else if (isObject(service)) {
    const name = String(service['name'] ?? '');
    if (name === '') errors.push(required(`${path}.service.name`));
    else {
      for (const problem of nameProblems(name, 'label'))
        errors.push(invalid(`${path}.service.name`, name, problem));
    }
    const port = isObject(service['port']) ? service['port'] : {};
    if (port['name'] && port['number']) {
      errors.push(invalid(path, '', 'cannot set both port name & port number'));
    } else if (port['name']) {
      for (const problem of portNameProblems(String(port['name']))) {
        errors.push(invalid(`${path}.service.port.name`, port['name'], problem));
      }
    } else if (port['number']) {
      const number = Number(port['number']);
      if (number < 1 || number > 65535) {
        errors.push(invalid(`${path}.service.port.number`, number, 'must be between 1 and 65535, inclusive'));
      }
    } else errors.push(required(path, 'port name or number is required'));
  } else errors.push(invalid(path, '', 'resource or service backend is required'));
}

function validatePath(entry: JsonObject, path: string, errors: FieldError[]): void {
  const type = entry['pathType'];
  const text = String(entry['path'] ?? '');
  if (type === undefined) {
    errors.push(required(`${path}.pathType`, 'pathType must be specified'));
    return;
  }
  if (!PATH_TYPES.includes(String(type))) errors.push(notSupported(`${path}.pathType`, type, PATH_TYPES));
  else {
    const isFree = type === 'ImplementationSpecific';
    if (!text.startsWith('/') && !(isFree && text === '')) {
      errors.push(invalid(`${path}.path`, text, 'must be an absolute path'));
    }
    if (!isFree) {
      for (const part of BAD_SEQUENCES) {
        if (text.includes(part)) errors.push(invalid(`${path}.path`, text, `must not contain '${part}'`));
      }
      for (const part of BAD_ENDINGS) {
        if (text.endsWith(part)) errors.push(invalid(`${path}.path`, text, `cannot end with '${part}'`));
      }
    }
  }
  validateBackend(isObject(entry['backend']) ? entry['backend'] : {}, `${path}.backend`, errors);
}

export function validateIngress(ingress: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(ingress['spec']) ? ingress['spec'] : {};
  const rules = listAt(spec, 'rules');
  const backend = spec['defaultBackend'];
  if (rules.length === 0 && !isObject(backend)) {
    errors.push(invalid('spec', [], 'either `defaultBackend` or `rules` must be specified'));
  }
  if (isObject(backend)) validateBackend(backend, 'spec.defaultBackend', errors);
  rules.forEach((rule, i) => {
    const field = `spec.rules[${i}]`;
    const host = String(rule['host'] ?? '');
    if (host !== '') {
      if (familyOf(host))
        errors.push(invalid(`${field}.host`, host, 'must be a DNS name, not an IP address'));
      validateHost(host, `${field}.host`, errors);
    }
    const http = rule['http'];
    if (!isObject(http)) return;
    const paths = listAt(http, 'paths');
    if (paths.length === 0) errors.push(required(`${field}.http.paths`));
    paths.forEach((entry, j) => {
      validatePath(entry, `${field}.http.paths[${j}]`, errors);
    });
  });
  listAt(spec, 'tls').forEach((tls, i) => {
    listAt(tls, 'hosts').forEach((host, j) => {
      validateHost(String(host), `spec.tls[${i}].hosts[${j}]`, errors);
    });
    named('subdomain')(tls['secretName'], `spec.tls[${i}].secretName`, errors, tls, tls);
  });
  const name = spec['ingressClassName'];
  if (name !== undefined) mustBeNamed('subdomain')(name, 'spec.ingressClassName', errors, spec, spec);
  const annotation = ingress.metadata.annotations?.['kubernetes.io/ingress.class'];
  if (!before && annotation !== undefined && name !== undefined && annotation !== name) {
    errors.push(
      invalid(
        'annotations.kubernetes.io/ingress.class',
        annotation,
        'must match `ingressClassName` when both are specified',
      ),
    );
  }
  return errors;
}

export function validateIngressClass(ingressClass: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(ingressClass['spec']) ? ingressClass['spec'] : {};
  const controller = String(spec['controller'] ?? '');
  if (controller.length > MAX_CONTROLLER) {
    errors.push({
      field: 'spec.controller',
      reason: 'FieldValueTooLong',
      message: `Too long: may not be more than ${MAX_CONTROLLER} bytes`,
    });
  }
  validateDomainPath(controller, 'spec.controller', errors);
  const parameters = spec['parameters'];
  if (isObject(parameters)) {
    const path = 'spec.parameters';
    applyRules(parameters, TYPED_REFERENCE, path, errors);
    const { scope, namespace } = parameters;
    if (scope === undefined) errors.push(required(`${path}.scope`));
    else if (scope === 'Namespace') {
      if (namespace === undefined) {
        errors.push(required(`${path}.namespace`, "`parameters.scope` is set to 'Namespace'"));
      } else mustBeNamed('label')(namespace, `${path}.namespace`, errors, parameters, parameters);
    } else if (scope === 'Cluster') {
      if (namespace !== undefined) {
        errors.push(forbidden(`${path}.namespace`, "`parameters.scope` is set to 'Cluster'"));
      }
    } else errors.push(notSupported(`${path}.scope`, scope, ['Cluster', 'Namespace']));
  }
  if (before) checkImmutable(ingressClass, before, ['spec.controller'], errors);
  return errors;
}

/** Checks a path that begins with a domain, "example.com/controller". */
function validateDomainPath(text: string, path: string, errors: FieldError[]): void {
  if (text === '') {
    errors.push(required(path));
    return;
  }
  const slash = text.indexOf('/');
  const rest = text.slice(slash + 1);
  if (slash < 0 || rest === '') {
    errors.push(invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")'));
    return;
  }
  for (const problem of nameProblems(text.slice(0, slash), 'subdomain')) {
    errors.push(invalid(path, text.slice(0, slash), problem));
  }
  if (!/^[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$/.test(rest)) errors.push(invalid(path, rest, 'Invalid path'));
}
