import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblem, portNameProblem, validatePortNumber } from './names.ts';

const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];

/** Checks a Pod; on update, that only what may change does (containers' images, deadlines, tolerations added). */
export function validatePod(pod: ApiObject, before: ApiObject | null): FieldError[] {
  const spec = pod['spec'];
  if (!isObject(spec)) return [required('spec.containers')];
  const errors = before ? [] : validatePodSpec(spec, 'spec');
  if (before) {
    const comparable = (object: ApiObject) => {
      const copy = structuredClone(isObject(object['spec']) ? object['spec'] : {}) as JsonObject;
      for (const list of ['containers', 'initContainers'])
        for (const c of listAt(copy, list)) delete c['image'];
      for (const field of [
        'activeDeadlineSeconds',
        'tolerations',
        'terminationGracePeriodSeconds',
        'ephemeralContainers',
        'schedulingGates',
      ]) {
        delete copy[field];
      }
      if (at(before, 'spec', 'nodeName') === undefined) delete copy['nodeName'];
      return copy;
    };
    if (!equal(comparable(pod), comparable(before))) {
      errors.push(
        forbidden(
          'spec',
          'pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)',
        ),
      );
    }
  }
  return errors;
}

/** Checks the spec of a pod, also inside a template. */
export function validatePodSpec(spec: JsonObject, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const containers = listAt(spec, 'containers');
  const names = new Set<unknown>();
  if (containers.length === 0) errors.push(required(`${path}.containers`));
  for (const list of ['initContainers', 'containers']) {
    for (const [i, container] of listAt(spec, list).entries()) {
      const field = `${path}.${list}[${i}]`;
      errors.push(...validateContainer(container, spec, field));
      if (names.has(container['name'])) errors.push(duplicate(`${field}.name`, container['name']));
      names.add(container['name']);
    }
  }
  const volumes = new Set<unknown>();
  for (const [i, volume] of listAt(spec, 'volumes').entries()) {
    const name = volume['name'];
    const problem = nameProblem(typeof name === 'string' ? name : '', 'label');
    if (name === undefined || name === '') errors.push(required(`${path}.volumes[${i}].name`));
    else if (problem) errors.push(invalid(`${path}.volumes[${i}].name`, name, problem));
    if (volumes.has(name)) errors.push(duplicate(`${path}.volumes[${i}].name`, name));
    volumes.add(name);
    const sources = Object.keys(volume).filter((field) => field !== 'name');
    if (sources.length > 1)
      errors.push(
        forbidden(`${path}.volumes[${i}].${sources[1]}`, 'may not specify more than 1 volume type'),
      );
  }
  for (const list of ['initContainers', 'containers']) {
    for (const [i, container] of listAt(spec, list).entries()) {
      for (const [j, mount] of listAt(container, 'volumeMounts').entries()) {
        const field = `${path}.${list}[${i}].volumeMounts[${j}]`;
        if (!volumes.has(mount['name'])) {
          errors.push({
            field: `${field}.name`,
            reason: 'FieldValueNotFound',
            message: `Not found: ${JSON.stringify(mount['name'])}`,
          });
        }
        if (!mount['mountPath']) errors.push(required(`${field}.mountPath`));
      }
    }
  }
  const choice = (field: string, choices: readonly string[]) => {
    const value = spec[field];
    if (typeof value !== 'string' || !choices.includes(value))
      errors.push(notSupported(`${path}.${field}`, value, choices));
  };
  choice('restartPolicy', ['Always', 'OnFailure', 'Never']);
  choice('dnsPolicy', ['ClusterFirst', 'ClusterFirstWithHostNet', 'Default', 'None']);
  const grace = spec['terminationGracePeriodSeconds'];
  if (typeof grace !== 'number' || !Number.isInteger(grace)) {
    errors.push(invalid(`${path}.terminationGracePeriodSeconds`, grace, 'must be a whole number'));
  }
  for (const field of ['hostname', 'subdomain']) {
    const value = spec[field];
    const problem = typeof value === 'string' && value !== '' ? nameProblem(value, 'label') : null;
    if (problem) errors.push(invalid(`${path}.${field}`, value, problem));
  }
  return errors;
}

function validateContainer(container: JsonObject, spec: JsonObject, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const name = container['name'];
  if (typeof name !== 'string' || name === '') errors.push(required(`${path}.name`));
  else {
    const problem = nameProblem(name, 'label');
    if (problem) errors.push(invalid(`${path}.name`, name, problem));
  }
  const image = container['image'];
  if (typeof image !== 'string' || image === '') errors.push(required(`${path}.image`));
  else if (image !== image.trim())
    errors.push(invalid(`${path}.image`, image, 'must not have leading or trailing whitespace'));
  const portNames = new Set<unknown>();
  for (const [i, port] of listAt(container, 'ports').entries()) {
    const field = `${path}.ports[${i}]`;
    errors.push(...validatePortNumber(port['containerPort'], `${field}.containerPort`));
    if (port['hostPort'] !== undefined && port['hostPort'] !== 0) {
      errors.push(...validatePortNumber(port['hostPort'], `${field}.hostPort`));
      if (spec['hostNetwork'] === true && port['hostPort'] !== port['containerPort']) {
        errors.push(
          invalid(
            `${field}.containerPort`,
            port['containerPort'],
            'must match `hostPort` when `hostNetwork` is true',
          ),
        );
      }
    }
    if (!PROTOCOLS.includes(String(port['protocol'])))
      errors.push(notSupported(`${field}.protocol`, port['protocol'], PROTOCOLS));
    if (typeof port['name'] === 'string' && port['name'] !== '') {
      const problem = portNameProblem(port['name']);
      if (problem) errors.push(invalid(`${field}.name`, port['name'], problem));
      if (portNames.has(port['name'])) errors.push(duplicate(`${field}.name`, port['name']));
      portNames.add(port['name']);
    }
  }
  for (const [i, variable] of listAt(container, 'env').entries()) {
    if (typeof variable['name'] !== 'string' || variable['name'] === '')
      errors.push(required(`${path}.env[${i}].name`));
    else if (!/^[\x20-\x3c\x3e-\x7e]+$/.test(variable['name'])) {
      errors.push(
        invalid(
          `${path}.env[${i}].name`,
          variable['name'],
          "a valid environment variable name must consist only of printable ASCII characters other than '='",
        ),
      );
    }
    if (variable['value'] && variable['valueFrom']) {
      errors.push(
        invalid(`${path}.env[${i}].valueFrom`, '', 'may not be specified when `value` is not empty'),
      );
    }
  }
  for (const kind of ['livenessProbe', 'readinessProbe', 'startupProbe']) {
    const probe = container[kind];
    if (isObject(probe)) errors.push(...validateProbe(probe, `${path}.${kind}`, kind));
  }
  const pull = container['imagePullPolicy'];
  const policies = ['Always', 'IfNotPresent', 'Never'];
  if (pull !== undefined && !policies.includes(String(pull)))
    errors.push(notSupported(`${path}.imagePullPolicy`, pull, policies));
  return errors;
}

function validateProbe(probe: JsonObject, path: string, kind: string): FieldError[] {
  const errors: FieldError[] = [];
  const handlers = ['exec', 'httpGet', 'tcpSocket', 'grpc'].filter((handler) => probe[handler] !== undefined);
  if (handlers.length === 0) errors.push(required(path, 'must specify a handler type'));
  if (handlers.length > 1)
    errors.push(forbidden(`${path}.${handlers[1]}`, 'may not specify more than 1 handler type'));
  for (const handler of ['httpGet', 'tcpSocket', 'grpc']) {
    const action = probe[handler];
    if (!isObject(action)) continue;
    const port = action['port'];
    if (typeof port === 'string') {
      const problem = portNameProblem(port);
      if (problem) errors.push(invalid(`${path}.${handler}.port`, port, problem));
    } else errors.push(...validatePortNumber(port, `${path}.${handler}.port`));
  }
  if (isObject(probe['exec']) && listAt(probe, 'exec', 'command').length === 0)
    errors.push(required(`${path}.exec.command`));
  for (const field of [
    'initialDelaySeconds',
    'timeoutSeconds',
    'periodSeconds',
    'successThreshold',
    'failureThreshold',
  ]) {
    const value = probe[field];
    if (typeof value === 'number' && value < 0)
      errors.push(invalid(`${path}.${field}`, value, 'must be greater than or equal to 0'));
  }
  if (kind !== 'readinessProbe' && probe['successThreshold'] !== 1) {
    errors.push(invalid(`${path}.successThreshold`, probe['successThreshold'], 'must be 1'));
  }
  return errors;
}
