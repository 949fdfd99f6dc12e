import { familyOf, parseCidr, sloppyCidr } from '../../lib/address.ts';
import { type ApiObject, at, isObject, listAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblem, portNameProblem, validateLabels, validatePortNumber } from './names.ts';

const TYPES = ['ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort'];
const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];
const POLICIES = ['Cluster', 'Local'];

/** Checks a Service; what the allocator decides (addresses, node ports, families) it checks itself. */
export function validateService(service: ApiObject, before: ApiObject | null): FieldError[] {
  const spec = service['spec'];
  if (!isObject(spec)) return [required('spec.ports')];
  const errors: FieldError[] = [];
  const type = String(spec['type']);
  const headless = spec['clusterIP'] === 'None';
  const ports = listAt(service, 'spec', 'ports');
  if (!TYPES.includes(type)) errors.push(notSupported('spec.type', spec['type'], TYPES));
  if (ports.length === 0 && type !== 'ExternalName' && !headless) errors.push(required('spec.ports'));
  if (type === 'LoadBalancer' && headless) {
    errors.push(invalid('spec.clusterIPs[0]', 'None', "may not be set to 'None' for LoadBalancer services"));
  }
  if (type === 'NodePort' && headless) {
    errors.push(invalid('spec.clusterIPs[0]', 'None', "may not be set to 'None' for NodePort services"));
  }
  if (type === 'ExternalName') {
    const name = String(spec['externalName'] ?? '').replace(/\.$/, '');
    if (name === '') errors.push(required('spec.externalName'));
    else if (nameProblem(name, 'subdomain'))
      errors.push(invalid('spec.externalName', name, nameProblem(name, 'subdomain') ?? ''));
    if (spec['clusterIP'])
      errors.push(forbidden('spec.clusterIPs', 'may not be set for ExternalName services'));
  }
  errors.push(...validatePorts(service, type), ...validateLabels(spec['selector'], 'spec.selector'));

  const affinity = spec['sessionAffinity'];
  if (affinity !== 'None' && affinity !== 'ClientIP') {
    errors.push(notSupported('spec.sessionAffinity', affinity, ['ClientIP', 'None']));
  }
  const timeout = at(spec, 'sessionAffinityConfig', 'clientIP', 'timeoutSeconds');
  if (timeout !== undefined && !(typeof timeout === 'number' && timeout > 0 && timeout <= 86400)) {
    errors.push(
      invalid(
        'spec.sessionAffinityConfig.clientIP.timeoutSeconds',
        timeout,
        'must be greater than 0 and less than 86400',
      ),
    );
  }
  for (const [i, address] of listAt(service, 'spec', 'externalIPs').entries()) {
    const text = String(address);
    if (!familyOf(text))
      errors.push(
        invalid(
          `spec.externalIPs[${i}]`,
          text,
          'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
        ),
      );
  }
  for (const [i, range] of listAt(service, 'spec', 'loadBalancerSourceRanges').entries()) {
    const text = String(range);
    if (!parseCidr(text.trim()) && !sloppyCidr(text)) {
      errors.push(
        invalid(
          `spec.loadBalancerSourceRanges[${i}]`,
          text,
          'must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)',
        ),
      );
    }
  }
  const external = spec['externalTrafficPolicy'];
  const reachable =
    type === 'NodePort' || type === 'LoadBalancer' || listAt(service, 'spec', 'externalIPs').length > 0;
  if (external !== undefined && external !== '') {
    if (!reachable)
      errors.push(
        invalid('spec.externalTrafficPolicy', external, 'may only be set for externally-accessible services'),
      );
    else if (!POLICIES.includes(String(external)))
      errors.push(notSupported('spec.externalTrafficPolicy', external, POLICIES));
  }
  const internal = spec['internalTrafficPolicy'];
  if (internal !== undefined && !POLICIES.includes(String(internal))) {
    errors.push(notSupported('spec.internalTrafficPolicy', internal, POLICIES));
  }
  const familyPolicy = spec['ipFamilyPolicy'];
  const familyPolicies = ['SingleStack', 'PreferDualStack', 'RequireDualStack'];
  if (familyPolicy !== undefined && !familyPolicies.includes(String(familyPolicy))) {
    errors.push(notSupported('spec.ipFamilyPolicy', familyPolicy, familyPolicies));
  }
  if (spec['loadBalancerClass'] !== undefined && type !== 'LoadBalancer') {
    errors.push(forbidden('spec.loadBalancerClass', 'may only be used when `type` is LoadBalancer'));
  }
  if (spec['allocateLoadBalancerNodePorts'] !== undefined && type !== 'LoadBalancer') {
    errors.push(
      forbidden('spec.allocateLoadBalancerNodePorts', "may only be used when `type` is 'LoadBalancer'"),
    );
  }
  errors.push(...validateChange(service, before));
  return errors;
}

function validatePorts(service: ApiObject, type: string): FieldError[] {
  const errors: FieldError[] = [];
  const ports = listAt(service, 'spec', 'ports');
  const names = new Set<string>();
  const numbers = new Set<string>();
  const nodePorts = new Set<string>();
  for (const [i, port] of ports.entries()) {
    const field = `spec.ports[${i}]`;
    const name = typeof port['name'] === 'string' ? port['name'] : '';
    if (name === '') {
      if (ports.length > 1) errors.push(required(`${field}.name`));
    } else {
      const problem = nameProblem(name, 'label');
      if (problem) errors.push(invalid(`${field}.name`, name, problem));
      if (names.has(name)) errors.push(duplicate(`${field}.name`, name));
      names.add(name);
    }
    errors.push(...validatePortNumber(port['port'], `${field}.port`));
    const protocol = String(port['protocol']);
    if (!PROTOCOLS.includes(protocol)) errors.push(notSupported(`${field}.protocol`, protocol, PROTOCOLS));
    const target = port['targetPort'];
    if (typeof target === 'string') {
      const problem = portNameProblem(target);
      if (problem) errors.push(invalid(`${field}.targetPort`, target, problem));
    } else if (target !== undefined) errors.push(...validatePortNumber(target, `${field}.targetPort`));
    const key = `${protocol}/${String(port['port'])}`;
    if (numbers.has(key)) errors.push(duplicate(field, { protocol, port: port['port'] }));
    numbers.add(key);
    const nodePort = port['nodePort'];
    if (nodePort !== undefined && nodePort !== 0) {
      if (type === 'ClusterIP' || type === 'ExternalName') {
        errors.push(forbidden(`${field}.nodePort`, "may not be used when `type` is 'ClusterIP'"));
      }
      const nodeKey = `${protocol}/${String(nodePort)}`;
      if (nodePorts.has(nodeKey)) errors.push(duplicate(`${field}.nodePort`, nodePort));
      nodePorts.add(nodeKey);
    }
  }
  return errors;
}

/** Addresses stay as long as the type keeps them. */
function validateChange(service: ApiObject, before: ApiObject | null): FieldError[] {
  if (!before) return [];
  const errors: FieldError[] = [];
  const type = at(service, 'spec', 'type');
  const oldType = at(before, 'spec', 'type');
  const keeps = type !== 'ExternalName' && oldType !== 'ExternalName';
  const oldIp = at(before, 'spec', 'clusterIP');
  const ip = at(service, 'spec', 'clusterIP');
  if (keeps && typeof oldIp === 'string' && oldIp !== '' && ip !== oldIp) {
    errors.push(invalid('spec.clusterIPs[0]', [ip ?? ''], 'may not change once set'));
  }
  const oldClass = at(before, 'spec', 'loadBalancerClass');
  if (
    type === 'LoadBalancer' &&
    oldType === 'LoadBalancer' &&
    oldClass !== at(service, 'spec', 'loadBalancerClass')
  ) {
    errors.push(
      invalid(
        'spec.loadBalancerClass',
        at(service, 'spec', 'loadBalancerClass') ?? null,
        'may not change once set',
      ),
    );
  }
  const oldHealth = at(before, 'spec', 'healthCheckNodePort');
  const health = at(service, 'spec', 'healthCheckNodePort');
  if (
    typeof oldHealth === 'number' &&
    oldHealth > 0 &&
    typeof health === 'number' &&
    health > 0 &&
    health !== oldHealth
  ) {
    errors.push(invalid('spec.healthCheckNodePort', health, 'field is immutable'));
  }
  return errors;
}
