import { type ApiObject, at, isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { checkAddress, checkCidr, checkEndpointAddress } from './addresses.ts';
import { nameProblems, validateLabels } from './names.ts';
import {
  applyRules,
  type Check,
  mustBeNamed,
  named,
  needed,
  neededOneOf,
  oneOf,
  portNumber,
  portNumberOrName,
  type Rule,
} from './rules.ts';

const DAY_SECONDS = 86400;
const SOURCE_RANGES = 'service.beta.kubernetes.io/load-balancer-source-ranges';

/** Upstream capitalizes the field's name here. */
const SOURCE_RANGES_PATH = 'spec.LoadBalancerSourceRanges';

const appProtocol: Check = (value, path, errors, parent, root) => {
  if (value !== undefined) mustBeNamed('qualified')(value, path, errors, parent, root);
};

const RULES: readonly Rule[] = [
  ['selector', (value, path, errors) => void errors.push(...validateLabels(value, path))],
  ['sessionAffinity', neededOneOf('ClientIP', 'None')],
  ['sessionAffinityConfig', affinityConfig],
  ['type', neededOneOf('ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort')],
  ['internalTrafficPolicy', oneOf('Cluster', 'Local')],
  ['trafficDistribution', oneOf('PreferClose', 'PreferSameNode', 'PreferSameZone')],
  ['ipFamilies[]', oneOf('IPv4', 'IPv6')],
  ['ipFamilyPolicy', oneOf('PreferDualStack', 'RequireDualStack', 'SingleStack')],
];

const PORT_RULES: readonly Rule[] = [
  ['port', portNumber],
  ['protocol', neededOneOf('SCTP', 'TCP', 'UDP')],
  ['targetPort', portNumberOrName],
  ['appProtocol', appProtocol],
];

function affinityConfig(value: unknown, path: string, errors: FieldError[], spec: JsonObject): void {
  if (spec['sessionAffinity'] !== 'ClientIP') return;
  const client = isObject(value) ? value['clientIP'] : undefined;
  const seconds = isObject(client) ? client['timeoutSeconds'] : undefined;
  if (typeof seconds !== 'number') {
    errors.push(required(path, 'when session affinity type is ClientIP'));
  } else if (seconds <= 0 || seconds > DAY_SECONDS) {
    errors.push(
      invalid(
        `${path}.clientIP.timeoutSeconds`,
        seconds,
        `must be greater than 0 and less than ${DAY_SECONDS}`,
      ),
    );
  }
}

/** Validates a Service except addresses, node ports and families, which the allocator checks. */
export function validateService(service: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(service['spec']) ? service['spec'] : {};
  const type = String(spec['type'] ?? '');
  const isHeadless = spec['clusterIP'] === 'None';
  const ports = listAt(spec, 'ports');
  if (ports.length === 0 && type !== 'ExternalName' && !isHeadless) errors.push(required('spec.ports'));
  if ((type === 'LoadBalancer' || type === 'NodePort') && isHeadless) {
    errors.push(invalid('spec.clusterIPs[0]', 'None', `may not be set to 'None' for ${type} services`));
  }
  if (type === 'ExternalName') validateExternalName(spec, errors);
  validatePorts(ports, type, errors);
  applyRules(spec, RULES, 'spec', errors);
  const old = new Set(listAt(before, 'spec', 'externalIPs').map(String));
  listAt(spec, 'externalIPs').forEach((address, i) => {
    const field = `spec.externalIPs[${i}]`;
    const count = errors.length;
    checkAddress(address, field, errors, old);
    if (errors.length === count) checkEndpointAddress(address, field, errors);
  });
  validateSourceRanges(service, before, type, errors);
  validateLoadBalancer(spec, type, errors);
  validateTrafficPolicy(spec, type, errors);
  errors.push(...validateChange(service, before));
  return errors;
}

function validateExternalName(spec: JsonObject, errors: FieldError[]): void {
  if (listAt(spec, 'clusterIPs').length > 0 || spec['clusterIP']) {
    errors.push(forbidden('spec.clusterIPs', 'may not be set for ExternalName services'));
  }
  for (const field of ['ipFamilies', 'ipFamilyPolicy']) {
    const value = spec[field];
    if (value !== undefined && !(Array.isArray(value) && value.length === 0)) {
      errors.push(forbidden(`spec.${field}`, 'may not be set for ExternalName services'));
    }
  }
  const name = String(spec['externalName'] ?? '').replace(/\.$/, '');
  if (name === '') errors.push(required('spec.externalName'));
  for (const problem of name === '' ? [] : nameProblems(name, 'subdomain')) {
    errors.push(invalid('spec.externalName', name, problem));
  }
}

function validatePorts(ports: readonly JsonObject[], type: string, errors: FieldError[]): void {
  const names = new Set<unknown>();
  const numbers = new Set<string>();
  const nodePorts = new Set<string>();
  ports.forEach((port, i) => {
    const field = `spec.ports[${i}]`;
    const { name, protocol, nodePort } = port;
    if (ports.length > 1) needed()(name, `${field}.name`, errors, port, port);
    named('label')(name, `${field}.name`, errors, port, port);
    if (name && names.has(name)) errors.push(duplicate(`${field}.name`, name));
    names.add(name);
    applyRules(port, PORT_RULES, field, errors);
    const number = port['port'] ?? 0;
    const key = `${protocol}/${number}`;
    if (numbers.has(key)) errors.push(duplicate(field, { protocol, port: number }));
    numbers.add(key);
    if (!nodePort) return;
    if (type === 'ClusterIP') {
      errors.push(forbidden(`${field}.nodePort`, "may not be used when `type` is 'ClusterIP'"));
    }
    const nodeKey = `${protocol}/${nodePort}`;
    if (nodePorts.has(nodeKey)) errors.push(duplicate(`${field}.nodePort`, nodePort));
    nodePorts.add(nodeKey);
  });
}

function validateSourceRanges(
  service: ApiObject,
  before: ApiObject | null,
  type: string,
  errors: FieldError[],
): void {
  const ranges = sourceRanges(service);
  if (ranges.length > 0) {
    if (type !== 'LoadBalancer') {
      errors.push(forbidden(SOURCE_RANGES_PATH, "may only be used when `type` is 'LoadBalancer'"));
    }
    ranges.forEach((range, i) => {
      checkCidr(range, `${SOURCE_RANGES_PATH}[${i}]`, errors, new Set(sourceRanges(before)));
    });
    return;
  }
  const annotation = service.metadata.annotations?.[SOURCE_RANGES];
  if (annotation === undefined) return;
  const field = `metadata.annotations[${SOURCE_RANGES}]`;
  if (type !== 'LoadBalancer')
    errors.push(forbidden(field, "may only be used when `type` is 'LoadBalancer'"));
  const old = before?.metadata.annotations?.[SOURCE_RANGES];
  if (annotation.trim() === '' || annotation === old) return;
  for (const range of annotation.split(',')) checkCidr(range.trim(), field, errors);
}

const sourceRanges = (service: ApiObject | null): string[] =>
  listAt(service, 'spec', 'loadBalancerSourceRanges').map((range) => String(range).trim());

function validateLoadBalancer(spec: JsonObject, type: string, errors: FieldError[]): void {
  if (type === 'LoadBalancer') {
    const name = spec['loadBalancerClass'];
    if (name !== undefined) mustBeNamed('qualified')(name, 'spec.loadBalancerClass', errors, spec, spec);
    return;
  }
  if (spec['allocateLoadBalancerNodePorts'] !== undefined) {
    errors.push(
      forbidden('spec.allocateLoadBalancerNodePorts', "may only be used when `type` is 'LoadBalancer'"),
    );
  }
  if (spec['loadBalancerClass'] !== undefined) {
    errors.push(forbidden('spec.loadBalancerClass', "may only be used when `type` is 'LoadBalancer'"));
  }
}

function validateTrafficPolicy(spec: JsonObject, type: string, errors: FieldError[]): void {
  const policy = spec['externalTrafficPolicy'];
  const isReachable =
    type === 'NodePort' || type === 'LoadBalancer' || listAt(spec, 'externalIPs').length > 0;
  if (!isReachable) {
    if (policy) {
      errors.push(
        invalid('spec.externalTrafficPolicy', policy, 'may only be set for externally-accessible services'),
      );
    }
  } else if (policy !== 'Cluster' && policy !== 'Local') {
    errors.push(notSupported('spec.externalTrafficPolicy', policy, ['Cluster', 'Local']));
  }
  const health = spec['healthCheckNodePort'];
  if (health && !(type === 'LoadBalancer' && policy === 'Local')) {
    errors.push(
      invalid(
        'spec.healthCheckNodePort',
        health,
        "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
      ),
    );
  } else if (health) portNumber(health, 'spec.healthCheckNodePort', errors, spec, spec);
}

/** Addresses are immutable as long as the type requires them. */
function validateChange(service: ApiObject, before: ApiObject | null): FieldError[] {
  if (!before) return [];
  const errors: FieldError[] = [];
  const type = at(service, 'spec', 'type');
  const oldType = at(before, 'spec', 'type');
  const keeps = type !== 'ExternalName' && oldType !== 'ExternalName';
  const oldAddress = at(before, 'spec', 'clusterIP');
  const address = at(service, 'spec', 'clusterIP');
  if (keeps && typeof oldAddress === 'string' && oldAddress !== '' && address !== oldAddress) {
    errors.push(invalid('spec.clusterIPs[0]', [address ?? ''], 'may not change once set'));
  }
  const oldClass = at(before, 'spec', 'loadBalancerClass');
  const newClass = at(service, 'spec', 'loadBalancerClass');
  if (type === 'LoadBalancer' && oldType === 'LoadBalancer' && oldClass !== newClass) {
    errors.push(invalid('spec.loadBalancerClass', newClass ?? null, 'may not change once set'));
  }
  const oldHealth = at(before, 'spec', 'healthCheckNodePort');
  const health = at(service, 'spec', 'healthCheckNodePort');
  const bothSet = oldHealth && health;
  if (bothSet && health !== oldHealth) {
    errors.push(forbidden('spec.healthCheckNodePort', 'field is immutable'));
  }
  return errors;
}
