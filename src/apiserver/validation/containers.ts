import { isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { validateDownwardField, validateDownwardResource } from './downward.ts';
import { portNameProblems } from './names.ts';
import { validateLifecycle, validateProbes } from './probes.ts';
import { validateResources } from './resources.ts';
import {
  applyRules,
  type Check,
  identifier,
  localPath,
  mustBeNamed,
  named,
  needed,
  neededOneOf,
  oneOf,
  portNumber,
  type Rule,
} from './rules.ts';

const ENVIRONMENT_FIELDS = [
  'metadata.name',
  'metadata.namespace',
  'metadata.uid',
  'spec.nodeName',
  'spec.serviceAccountName',
  'status.hostIP',
  'status.hostIPs',
  'status.podIP',
  'status.podIPs',
];

/** Data of a pod for the checks of its containers. */
export interface PodScope {
  readonly volumes: ReadonlyMap<string, JsonObject>;
  readonly claims: ReadonlySet<string>;
  readonly grace: unknown;
  readonly restartPolicy: unknown;
}

const RULES: readonly Rule[] = [
  ['name', needed(), named('label')],
  ['image', needed()],
  ['terminationMessagePolicy', neededOneOf('File', 'FallbackToLogsOnError')],
  ['imagePullPolicy', neededOneOf('Always', 'IfNotPresent', 'Never')],
  ['ports[].protocol', neededOneOf('SCTP', 'TCP', 'UDP')],
  ['env[].name', needed(), named('environment')],
  ['env[].valueFrom', environmentSource],
  ['envFrom[].prefix', named('environment')],
  ['resizePolicy[].resourceName', oneOf('cpu', 'memory')],
  ['resizePolicy[].restartPolicy', oneOf('NotRequired', 'RestartContainer')],
];

/** Validates what init containers, containers and ephemeral containers have in common. */
export function validateContainerCommon(
  container: JsonObject,
  path: string,
  scope: PodScope,
  errors: FieldError[],
): void {
  applyRules(container, RULES, path, errors);
  validatePorts(container, `${path}.ports`, errors);
  for (const source of listAt(container, 'envFrom')) {
    const references = ['configMapRef', 'secretRef'].filter((name) => isObject(source[name]));
    if (references.length === 0) {
      errors.push(invalid(`${path}.envFrom`, '', 'must specify one of: `configMapRef` or `secretRef`'));
    } else if (references.length > 1) {
      errors.push(invalid(`${path}.envFrom`, '', 'may not have more than one field specified at a time'));
    }
  }
  listAt(container, 'envFrom').forEach((source, i) => {
    for (const name of ['configMapRef', 'secretRef']) {
      const reference = source[name];
      if (!isObject(reference)) continue;
      const field = `${path}.envFrom[${i}].${name}.name`;
      needed()(reference['name'], field, errors, reference, reference);
      named('subdomain')(reference['name'], field, errors, reference, reference);
    }
  });
  validateMounts(container, path, scope, errors);
  validateResources(container['resources'], `${path}.resources`, errors, scope.claims);
  validateSecurity(container['securityContext'], `${path}.securityContext`, errors);
}

function validatePorts(container: JsonObject, path: string, errors: FieldError[]): void {
  const names = new Set<string>();
  for (const [i, port] of listAt(container, 'ports').entries()) {
    const name = String(port['name'] ?? '');
    if (name !== '') {
      const problems = portNameProblems(name);
      for (const problem of problems) errors.push(invalid(`${path}[${i}].name`, name, problem));
      if (problems.length === 0 && names.has(name)) errors.push(duplicate(`${path}[${i}].name`, name));
      if (problems.length === 0) names.add(name);
    }
    const number = port['containerPort'];
    if (!number) errors.push(required(`${path}[${i}].containerPort`));
    else portNumber(number, `${path}[${i}].containerPort`, errors, port, port);
    if (port['hostPort']) portNumber(port['hostPort'], `${path}[${i}].hostPort`, errors, port, port);
  }
}

const KEY_RULES: readonly Rule[] = [
  ['name', mustBeNamed('subdomain')],
  ['key', needed(), named('configKey')],
];

function environmentSource(value: unknown, path: string, errors: FieldError[], parent: JsonObject): void {
  if (!isObject(value)) return;
  const { fieldRef, resourceFieldRef } = value;
  if (isObject(fieldRef)) validateDownwardField(fieldRef, `${path}.fieldRef`, ENVIRONMENT_FIELDS, errors);
  if (isObject(resourceFieldRef)) {
    validateDownwardResource(resourceFieldRef, `${path}.resourceFieldRef`, false, errors);
  }
  for (const source of ['configMapKeyRef', 'secretKeyRef']) {
    const reference = value[source];
    if (isObject(reference)) applyRules(reference, KEY_RULES, `${path}.${source}`, errors);
  }
  const file = value['fileKeyRef'];
  if (isObject(file)) {
    const rules: readonly Rule[] = [
      ['key', needed(), named('environment')],
      ['volumeName', needed(), named('label')],
      ['path', needed(), localPath],
    ];
    applyRules(file, rules, `${path}.fileKeyRef`, errors);
  }
  const sources = Object.keys(value).filter((name) => isObject(value[name])).length;
  if (sources === 0) {
    errors.push(
      invalid(
        path,
        '',
        'must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`',
      ),
    );
  } else if (parent['value'])
    errors.push(invalid(path, '', 'may not be specified when `value` is not empty'));
  else if (sources > 1) {
    errors.push(invalid(path, '', 'may not have more than one field specified at a time'));
  }
}

function validateMounts(container: JsonObject, path: string, scope: PodScope, errors: FieldError[]): void {
  const seen = new Set<unknown>();
  const devices = listAt(container, 'volumeDevices');
  for (const [i, mount] of listAt(container, 'volumeMounts').entries()) {
    const field = `${path}.volumeMounts[${i}]`;
    const name = String(mount['name'] ?? '');
    if (name === '') errors.push(required(`${field}.name`));
    if (!scope.volumes.has(name)) errors.push(notFoundAt(`${field}.name`, name));
    if (!mount['mountPath']) errors.push(required(`${field}.mountPath`));
    const at = mount['mountPath'] ?? '';
    if (seen.has(at)) errors.push(invalid(`${field}.mountPath`, at, 'must be unique'));
    seen.add(at);
    if (devices.some((device) => device['name'] === mount['name'])) {
      errors.push(invalid(`${field}.name`, name, 'must not already exist in volumeDevices'));
    }
    if (devices.some((device) => device['devicePath'] === at)) {
      errors.push(invalid(`${field}.mountPath`, at, 'must not already exist as a path in volumeDevices'));
    }
    // Upstream omits the index from these.
    const without = `${path}.volumeMounts`;
    localPath(mount['subPath'], `${without}.subPath`, errors, mount, mount);
    localPath(mount['subPathExpr'], `${without}.subPathExpr`, errors, mount, mount);
    if (mount['subPath'] && mount['subPathExpr']) {
      errors.push(
        invalid(
          `${field}.subPathExpr`,
          mount['subPathExpr'],
          'subPathExpr and subPath are mutually exclusive',
        ),
      );
    }
    const propagation = mount['mountPropagation'];
    const modes = ['Bidirectional', 'HostToContainer', 'None'];
    if (propagation !== undefined && !modes.includes(String(propagation))) {
      errors.push(notSupported(`${without}.mountPropagation`, propagation, modes));
    }
    const security = container['securityContext'];
    if (propagation === 'Bidirectional' && !(isObject(security) && security['privileged'] === true)) {
      errors.push(
        forbidden(
          `${without}.mountPropagation`,
          'Bidirectional mount propagation is available only to privileged containers',
        ),
      );
    }
    const recursive = mount['recursiveReadOnly'];
    if (recursive !== undefined && recursive !== 'Disabled') {
      const choices = ['Disabled', 'Enabled', 'IfPossible'];
      if (!choices.includes(String(recursive))) {
        errors.push(notSupported(`${without}.recursiveReadOnly`, recursive, choices));
      } else if (mount['readOnly'] !== true) {
        errors.push(forbidden(`${without}.recursiveReadOnly`, 'may only be specified when readOnly is true'));
      }
    }
  }
  for (const [i, device] of devices.entries()) {
    const field = `${path}.volumeDevices[${i}]`;
    const name = String(device['name'] ?? '');
    const volume = scope.volumes.get(name);
    if (name === '') errors.push(required(`${field}.name`));
    if (!volume) errors.push(notFoundAt(`${field}.name`, name));
    else if (!volume['persistentVolumeClaim'] && !volume['ephemeral']) {
      errors.push(
        invalid(
          `${field}.name`,
          name,
          'can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode',
        ),
      );
    }
    if (!device['devicePath']) errors.push(required(`${field}.devicePath`));
  }
}

function notFoundAt(field: string, value: unknown): FieldError {
  return { field, reason: 'FieldValueNotFound', message: `Not found: ${JSON.stringify(value)}` };
}

/** Checks a profile whose type says whether a profile file of the node is named. */
function securityProfile(kind: 'seccomp' | 'AppArmor', nameCheck?: Check): Check {
  const type = neededOneOf('Localhost', 'RuntimeDefault', 'Unconfined');
  return (value, path, errors) => {
    if (!isObject(value)) return;
    type(value['type'], `${path}.type`, errors, value, value);
    const local = value['localhostProfile'];
    const field = `${path}.localhostProfile`;
    if (value['type'] === 'Localhost') {
      if (!local) errors.push(required(field, `must be set when ${kind} type is Localhost`));
      else nameCheck?.(local, field, errors, value, value);
    } else if (local !== undefined) {
      errors.push(invalid(field, local, `can only be set when ${kind} type is Localhost`));
    }
  };
}

export const seccompProfile = securityProfile('seccomp', localPath);
export const appArmorProfile = securityProfile('AppArmor');

const SECURITY_RULES: readonly Rule[] = [
  ['runAsUser', identifier],
  ['runAsGroup', identifier],
  ['procMount', oneOf('Default', 'Unmasked')],
  ['seccompProfile', seccompProfile],
  ['appArmorProfile', appArmorProfile],
];

function validateSecurity(security: unknown, path: string, errors: FieldError[]): void {
  if (!isObject(security)) return;
  applyRules(security, SECURITY_RULES, path, errors);
  if (security['procMount'] === 'Unmasked') {
    errors.push(invalid(`${path}.procMount`, 'Unmasked', '`hostUsers` must be false to use `Unmasked`'));
  }
  if (security['allowPrivilegeEscalation'] !== false) return;
  if (security['privileged'] === true) {
    errors.push(
      invalid(path, security, 'cannot set `allowPrivilegeEscalation` to false and `privileged` to true'),
    );
  }
  for (const capability of listAt(security, 'capabilities', 'add').map(String)) {
    if (capability === 'CAP_SYS_ADMIN') {
      errors.push(
        invalid(
          path,
          security,
          'cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN',
        ),
      );
    }
  }
}

/** Validates the rules of containers that depend on their list. */
export function validateContainers(
  spec: JsonObject,
  path: string,
  scope: PodScope,
  errors: FieldError[],
): void {
  const regular = listAt(spec, 'containers');
  if (regular.length === 0) errors.push(required(`${path}.containers`));
  const names = new Set<unknown>();
  for (const [i, container] of regular.entries()) {
    const field = `${path}.containers[${i}]`;
    if (names.has(container['name'])) errors.push(duplicate(`${field}.name`, container['name'] ?? ''));
    else if (container['name']) names.add(container['name']);
    validateContainerCommon(container, field, scope, errors);
    validateRestartPolicy(container, field, errors);
    validateLifecycle(container['lifecycle'], `${field}.lifecycle`, scope.grace, errors);
    validateProbes(container, field, scope.grace, errors);
  }
  checkHostPorts(regular, `${path}.containers`, errors);
  for (const [i, container] of listAt(spec, 'initContainers').entries()) {
    const field = `${path}.initContainers[${i}]`;
    validateContainerCommon(container, field, scope, errors);
    if (names.has(container['name'])) errors.push(duplicate(`${field}.name`, container['name'] ?? ''));
    else if (container['name']) names.add(container['name']);
    validateRestartPolicy(container, field, errors);
    checkHostPorts([container], `${path}.initContainers`, errors);
    if (container['restartPolicy'] === 'Always') {
      validateLifecycle(container['lifecycle'], `${field}.lifecycle`, scope.grace, errors);
      validateProbes(container, field, scope.grace, errors);
      continue;
    }
    for (const name of ['lifecycle', 'livenessProbe', 'readinessProbe', 'startupProbe']) {
      if (container[name] !== undefined) {
        errors.push(
          forbidden(`${field}.${name}`, 'may not be set for init containers without restartPolicy=Always'),
        );
      }
    }
  }
}

function validateRestartPolicy(container: JsonObject, path: string, errors: FieldError[]): void {
  const policy = container['restartPolicy'];
  const choices = ['Always', 'Never', 'OnFailure'];
  if (policy !== undefined && !choices.includes(String(policy))) {
    errors.push(notSupported(`${path}.restartPolicy`, policy, choices));
  }
  if (policy === undefined && listAt(container, 'restartPolicyRules').length > 0) {
    errors.push(required(`${path}.restartPolicy`, 'must specify restartPolicy when restart rules are used'));
  }
}

/** Checks that host ports of a pod's containers are unique for each address and protocol. */
function checkHostPorts(containers: readonly JsonObject[], path: string, errors: FieldError[]): void {
  const seen = new Set<string>();
  containers.forEach((container, i) => {
    listAt(container, 'ports').forEach((port, j) => {
      if (!port['hostPort']) return;
      const key = `${port['protocol']}/${port['hostIP'] ?? ''}/${port['hostPort']}`;
      if (seen.has(key)) errors.push(duplicate(`${path}[${i}].ports[${j}].hostPort`, key));
      seen.add(key);
    });
  });
}
