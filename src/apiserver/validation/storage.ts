import { quantityNano } from '../../kube/quantity-text.ts';
import { ZONE_LABEL } from '../../kube/well-known-labels.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { duplicate, type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { validateAccessModes, validateClaimSpec } from './claims.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import { repeats } from './repeats.ts';
import {
  applyRules,
  atLeastZero,
  between,
  checkImmutable,
  distinct,
  mustBeNamed,
  named,
  needed,
  oneOf,
  type Rule,
} from './rules.ts';
import { validateNodeSelector } from './scheduling.ts';
import { csiDriverName, VOLUME_SOURCES } from './volumes.ts';

/** Sources of a PersistentVolume with other rules than a pod's volume. */
const PERSISTENT_SOURCES: Readonly<Record<string, readonly Rule[]>> = {
  ...VOLUME_SOURCES,
  csi: [
    ['driver', csiDriverName],
    ['volumeHandle', needed()],
    ...[
      'controllerPublishSecretRef',
      'controllerExpandSecretRef',
      'nodePublishSecretRef',
      'nodeExpandSecretRef',
      'nodeStageSecretRef',
    ].flatMap((field): Rule[] => [
      [`${field}.name`, needed()],
      [`${field}.namespace`, needed()],
    ]),
  ],
  local: [['path', needed()]],
};

const BESIDES = new Set(['capacity', 'claimRef', 'nodeAffinity']);

export function validatePersistentVolume(volume: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(volume['spec']) ? volume['spec'] : {};
  validateAccessModes(spec, 'spec', errors);
  const capacity = isObject(spec['capacity']) ? spec['capacity'] : {};
  if (Object.keys(capacity).length === 0) errors.push(required('spec.capacity'));
  if (capacity['storage'] === undefined || Object.keys(capacity).length > 1) {
    errors.push(notSupported('spec.capacity', capacity, ['storage']));
  }
  for (const [name, amount] of Object.entries(capacity)) {
    if ((quantityNano(amount) ?? 0n) <= 0n) {
      errors.push(invalid(`spec.capacity[${name}]`, amount, 'must be greater than zero'));
    }
  }
  const reclaim = spec['persistentVolumeReclaimPolicy'];
  const policies = ['Delete', 'Recycle', 'Retain'];
  if (!policies.includes(String(reclaim))) {
    errors.push(notSupported('spec.persistentVolumeReclaimPolicy', reclaim ?? '', policies));
  }
  const affinity = spec['nodeAffinity'];
  if (isObject(affinity)) {
    if (isObject(affinity['required'])) {
      validateNodeSelector(affinity['required'], 'spec.nodeAffinity.required', errors);
    } else errors.push(required('spec.nodeAffinity.required', 'must specify required node constraints'));
  }
  const sources = Object.keys(spec).filter((field) => isObject(spec[field]) && !BESIDES.has(field));
  if (sources.length === 0) errors.push(required('spec', 'must specify a volume type'));
  sources.forEach((source, i) => {
    if (i > 0) {
      errors.push(forbidden(`spec.${source}`, 'may not specify more than 1 volume type'));
      return;
    }
    applyRules(spec[source] as JsonObject, PERSISTENT_SOURCES[source] ?? [], `spec.${source}`, errors);
  });
  if (sources[0] === 'local' && !isObject(affinity)) {
    errors.push(required('spec.nodeAffinity', 'Local volume requires node affinity'));
  }
  if (at(spec, 'hostPath', 'path') === '/' && reclaim === 'Recycle') {
    errors.push(
      forbidden('spec.persistentVolumeReclaimPolicy', "may not be 'recycle' for a hostPath mount of '/'"),
    );
  }
  applyRules(
    spec,
    [
      ['storageClassName', named('subdomain')],
      ['volumeAttributesClassName', named('subdomain')],
      ['volumeMode', oneOf('Block', 'Filesystem')],
    ],
    'spec',
    errors,
  );
  if (!before) return errors;
  const old: JsonObject = isObject(before['spec']) ? before['spec'] : {};
  const source = (one: JsonObject) =>
    Object.fromEntries(
      Object.entries(one).filter(([field, value]) => isObject(value) && !BESIDES.has(field)),
    );
  if (!equal(source(spec), source(old))) {
    errors.push(
      forbidden('spec.persistentvolumesource', 'spec.persistentvolumesource is immutable after creation'),
    );
  }
  // Upstream reports these without "spec".
  checkImmutable(spec, old, ['volumeMode'], errors);
  if (isObject(old['nodeAffinity'])) {
    const renamed = renameTopologyLabels(old, spec['nodeAffinity']);
    checkImmutable(spec, renamed, ['nodeAffinity'], errors);
  }
  return errors;
}

/** The labels of nodes that replaced beta ones. */
const TOPOLOGY_LABELS: Readonly<Record<string, string>> = {
  'failure-domain.beta.kubernetes.io/zone': ZONE_LABEL,
  'failure-domain.beta.kubernetes.io/region': 'topology.kubernetes.io/region',
  'beta.kubernetes.io/instance-type': 'node.kubernetes.io/instance-type',
};

/**
 * Returns the old spec with the keys of its affinity that `affinity` may rename: a beta label to its successor. As with
 * upstream, an emptied key is not a change: it is reported as missing.
 */
function renameTopologyLabels(old: JsonObject, affinity: unknown): JsonObject {
  const copy = structuredClone(old);
  const terms = listAt(affinity, 'required', 'nodeSelectorTerms');
  listAt(copy, 'nodeAffinity', 'required', 'nodeSelectorTerms').forEach((term, i) => {
    const expressions = listAt(terms[i], 'matchExpressions');
    listAt(term, 'matchExpressions').forEach((expression, j) => {
      const now = expressions[j];
      if (now && textAt(now, 'key') === (TOPOLOGY_LABELS[textAt(expression, 'key')] ?? '')) {
        if (now['key'] === undefined) delete expression['key'];
        else expression['key'] = now['key'];
      }
    });
  });
  return copy;
}

export function validateClaim(claim: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  validateClaimSpec(claim['spec'], 'spec', errors);
  if (!before) return errors;
  const spec: JsonObject = isObject(claim['spec']) ? claim['spec'] : {};
  const old: JsonObject = isObject(before['spec']) ? before['spec'] : {};
  const isBound = textAt(before, 'status', 'phase') === 'Bound';
  const fixed = (one: JsonObject) => {
    const copy = structuredClone(one);
    // A bound claim may grow; binding sets the volume and, if absent, the class.
    const requests = at(copy, 'resources', 'requests');
    if (isBound && isObject(requests)) delete requests['storage'];
    if (!old['volumeName']) delete copy['volumeName'];
    if (old['storageClassName'] === undefined) delete copy['storageClassName'];
    delete copy['volumeAttributesClassName'];
    delete copy['dataSource'];
    delete copy['dataSourceRef'];
    return copy;
  };
  if (!equal(fixed(spec), fixed(old))) {
    errors.push(
      forbidden(
        'spec',
        'spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims',
      ),
    );
  }
  const amount = (value: unknown) => quantityNano(value) ?? 0n;
  const now = amount(at(spec, 'resources', 'requests', 'storage'));
  const isLess = now < amount(at(old, 'resources', 'requests', 'storage'));
  if (isLess && now <= amount(at(before, 'status', 'capacity', 'storage'))) {
    errors.push(forbidden('spec.resources.requests.storage', 'field can not be less than status.capacity'));
  }
  checkImmutable(spec, old, ['volumeMode'], errors);
  return errors;
}

const MAX_PARAMETERS = 512;

export function validateStorageClass(storageClass: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const provisioner = String(storageClass['provisioner'] ?? '');
  if (provisioner === '') errors.push(required('provisioner'));
  else {
    for (const problem of nameProblems(provisioner.toLowerCase(), 'qualified')) {
      errors.push(invalid('provisioner', provisioner, problem));
    }
  }
  validateParameters(storageClass['parameters'], 'parameters', errors);
  const reclaim = storageClass['reclaimPolicy'];
  if (reclaim && reclaim !== 'Delete' && reclaim !== 'Retain') {
    errors.push(notSupported('reclaimPolicy', reclaim, ['Delete', 'Retain']));
  }
  const mode = storageClass['volumeBindingMode'];
  const modes = ['Immediate', 'WaitForFirstConsumer'];
  if (!modes.includes(String(mode))) errors.push(notSupported('volumeBindingMode', mode, modes));
  validateTopologies(listAt(storageClass, 'allowedTopologies'), errors);
  if (before) {
    checkImmutable(
      storageClass,
      before,
      ['parameters', 'provisioner', 'reclaimPolicy', 'volumeBindingMode'],
      errors,
    );
  }
  return errors;
}

function validateParameters(parameters: unknown, path: string, errors: FieldError[]): void {
  const entries = Object.entries(isObject(parameters) ? parameters : {});
  if (entries.length > MAX_PARAMETERS) {
    errors.push({
      field: path,
      reason: 'FieldValueTooLong',
      message: `Too long: may not be more than ${MAX_PARAMETERS} bytes`,
    });
  }
  if (entries.some(([key]) => key === '')) errors.push(invalid(path, '', 'field can not be empty.'));
}

function validateTopologies(topologies: readonly JsonObject[], errors: FieldError[]): void {
  const seen = new Set<string>();
  topologies.forEach((term, i) => {
    const path = `allowedTopologies[${i}].matchLabelExpressions`;
    const keys = new Set<unknown>();
    const expressions = listAt(term, 'matchLabelExpressions');
    expressions.forEach((expression, j) => {
      const field = `${path}[${j}]`;
      const key = expression['key'] ?? '';
      const values = listAt(expression, 'values').map(String);
      if (values.length === 0) errors.push(required(`${field}.values`));
      const again = repeats(values);
      values.forEach((value, k) => {
        if (again.has(k)) errors.push(duplicate(`${field}.values[${k}]`, value));
      });
      for (const problem of nameProblems(String(key), 'qualified'))
        errors.push(invalid(`${field}.key`, key, problem));
      if (keys.has(key)) errors.push(duplicate(`${field}.key`, key));
      keys.add(key);
    });
    const text = JSON.stringify(expressions);
    if (seen.has(text) || expressions.length === 0) errors.push(duplicate(path, ''));
    seen.add(text);
  });
}

export function validateVolumeAttributesClass(attributes: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const driver = String(attributes['driverName'] ?? '');
  if (driver === '') errors.push(required('driverName'));
  for (const problem of driver === '' ? [] : nameProblems(driver.toLowerCase(), 'qualified')) {
    errors.push(invalid('driverName', driver, problem));
  }
  const parameters = attributes['parameters'];
  if (!isObject(parameters) || Object.keys(parameters).length === 0) {
    errors.push(required('parameters', 'must contain at least one key/value pair'));
  }
  validateParameters(parameters, 'parameters', errors);
  for (const field of before ? ['driverName', 'parameters'] : []) {
    if (!equal(attributes[field], before?.[field]))
      errors.push(forbidden(field, 'updates to this field are forbidden'));
  }
  return errors;
}

const TEN_MINUTES = 600;

const CSI_DRIVER_RULES: readonly Rule[] = [
  ['fsGroupPolicy', oneOf('File', 'None', 'ReadWriteOnceWithFSType')],
  ['tokenRequests', distinct((request) => request['audience'] ?? '', '.audience')],
  [
    'tokenRequests[].expirationSeconds',
    between(TEN_MINUTES, 2 ** 32, 'may not specify a duration less than 10 minutes'),
  ],
  [
    'volumeLifecycleModes[]',
    (value, path, errors) => {
      const modes = ['Ephemeral', 'Persistent'];
      // Upstream reports the list.
      if (!modes.includes(String(value)))
        errors.push(notSupported(path.replace(/\[\d+\]$/, ''), value, modes));
    },
  ],
  [
    'nodeAllocatableUpdatePeriodSeconds',
    between(10, Number.MAX_SAFE_INTEGER, 'must be greater than or equal to 10 seconds'),
  ],
];

export function validateCsiDriver(driver: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(driver['spec']) ? driver['spec'] : {};
  applyRules(spec, CSI_DRIVER_RULES, 'spec', errors);
  if (!before) return errors;
  const old: JsonObject = isObject(before['spec']) ? before['spec'] : {};
  if (!equal(spec['attachRequired'], old['attachRequired'])) {
    errors.push(invalid('spec.attachedRequired', spec['attachRequired'], 'field is immutable'));
  }
  checkImmutable(driver, before, ['spec.volumeLifecycleModes'], errors);
  return errors;
}

const MAX_NODE_ID = 256;

export function validateCsiNode(node: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const drivers = listAt(node, 'spec', 'drivers');
  const names = new Set<unknown>();
  drivers.forEach((driver, i) => {
    const path = `spec.drivers[${i}]`;
    csiDriverName(driver['name'], `${path}.name`, errors, driver, driver);
    const id = String(driver['nodeID'] ?? '');
    if (id === '') errors.push(required(`${path}.nodeID`));
    if (id.length > MAX_NODE_ID)
      errors.push(invalid(`${path}.nodeID`, id, `must be ${MAX_NODE_ID} characters or less`));
    applyRules(driver, [['allocatable.count', atLeastZero]], path, errors);
    if (names.has(driver['name'])) errors.push(duplicate(`${path}.name`, driver['name']));
    names.add(driver['name']);
    const keys = listAt(driver, 'topologyKeys').map(String);
    const again = repeats(keys);
    keys.forEach((key, j) => {
      if (key === '') errors.push(required(path));
      if (again.has(j)) errors.push(duplicate(path, key));
      for (const problem of nameProblems(key, 'qualified')) errors.push(invalid(path, key, problem));
    });
  });
  if (!before) return errors;
  for (const old of listAt(before, 'spec', 'drivers')) {
    for (const driver of drivers) {
      if (driver['name'] !== old['name']) continue;
      const { allocatable: _a, ...rest } = driver;
      const { allocatable: _b, ...oldRest } = old;
      if (!equal(rest, oldRest)) errors.push(invalid('spec.drivers', rest, 'field is immutable'));
    }
  }
  return errors;
}

export function validateCsiCapacity(capacity: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const name = capacity['storageClassName'];
  for (const problem of nameProblems(String(name ?? ''), 'subdomain')) {
    errors.push(invalid('storageClassName', name ?? '', problem));
  }
  errors.push(...validateLabelSelector(capacity['nodeTopology'], 'nodeTopology'));
  for (const field of ['capacity', 'maximumVolumeSize']) {
    if ((quantityNano(capacity[field]) ?? 0n) < 0n) {
      errors.push(invalid(field, capacity[field], 'must be greater than or equal to 0'));
    }
  }
  if (before) checkImmutable(capacity, before, ['nodeTopology', 'storageClassName'], errors);
  return errors;
}

export function validateVolumeAttachment(attachment: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  if (before) checkImmutable(attachment, before, ['spec'], errors);
  const spec: JsonObject = isObject(attachment['spec']) ? attachment['spec'] : {};
  csiDriverName(spec['attacher'], 'spec.attacher', errors, spec, spec);
  const source: JsonObject = isObject(spec['source']) ? spec['source'] : {};
  const name = source['persistentVolumeName'];
  if (name === undefined && source['inlineVolumeSpec'] === undefined) {
    errors.push(
      required('spec.source', 'must specify exactly one of inlineVolumeSpec and persistentVolumeName'),
    );
  } else if (name !== undefined && source['inlineVolumeSpec'] !== undefined) {
    errors.push(
      forbidden('spec.source', 'must specify exactly one of inlineVolumeSpec and persistentVolumeName'),
    );
  } else if (name === '') {
    errors.push(required('spec.source.persistentVolumeName', 'must specify non empty persistentVolumeName'));
  }
  mustBeNamed('subdomain')(spec['nodeName'], 'spec.nodeName', errors, spec, spec);
  if (name !== undefined)
    mustBeNamed('subdomain')(name, 'spec.source.persistentVolumeName', errors, spec, spec);
  return errors;
}
