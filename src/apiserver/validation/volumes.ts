import { quantityNano } from '../../kube/quantity-text.ts';
import { isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, required } from '../status-error.ts';
import { validateClaimSpec } from './claims.ts';
import { validateDownwardField, validateDownwardResource } from './downward.ts';
import { validateTemplateMetadata } from './metadata.ts';
import { nameProblems } from './names.ts';
import {
  applyRules,
  between,
  type Check,
  fileMode,
  isUnset,
  localPath,
  needed,
  noBacksteps,
  oneOf,
  type Rule,
} from './rules.ts';

const HOST_PATH_TYPES = [
  '',
  'DirectoryOrCreate',
  'Directory',
  'FileOrCreate',
  'File',
  'Socket',
  'CharDevice',
  'BlockDevice',
];

const keyToPath: readonly Rule[] = [
  ['items[].key', needed()],
  ['items[].path', needed(), localPath],
  ['items[].mode', fileMode],
];

/** Checks the name of a CSI driver: at most 63 characters. */
export const csiDriverName: Check = (value, path, errors) => {
  const name = String(value ?? '');
  if (name === '') {
    errors.push(required(path));
    return;
  }
  if (name.length > 63) {
    errors.push({
      field: path,
      reason: 'FieldValueTooLong',
      message: 'Too long: may not be more than 63 bytes',
    });
  }
  for (const problem of nameProblems(name.toLowerCase(), 'subdomain'))
    errors.push(invalid(path, name, problem));
};

/** The rules of each volume source, below its field. Sources without rules accept any value of their type. */
export const VOLUME_SOURCES: Readonly<Record<string, readonly Rule[]>> = {
  emptyDir: [
    [
      'sizeLimit',
      (value, path, errors) => {
        if ((quantityNano(value) ?? 0n) < 0n)
          errors.push(forbidden(path, 'SizeLimit field must be a valid resource quantity'));
      },
    ],
  ],
  hostPath: [
    ['path', needed(), noBacksteps],
    ['type', oneOf(...HOST_PATH_TYPES)],
  ],
  gitRepo: [
    ['repository', needed()],
    ['directory', localPath],
  ],
  gcePersistentDisk: [
    ['pdName', needed()],
    ['partition', between(0, 255, 'must be between 0 and 255, inclusive')],
  ],
  awsElasticBlockStore: [
    ['volumeID', needed()],
    ['partition', between(0, 255, 'must be between 0 and 255, inclusive')],
  ],
  secret: [['secretName', needed()], ['defaultMode', fileMode], ...keyToPath],
  configMap: [['name', needed()], ['defaultMode', fileMode], ...keyToPath],
  nfs: [
    ['server', needed()],
    ['path', needed(), absolute('must be an absolute path', true)],
  ],
  iscsi: [
    ['targetPortal', needed()],
    ['iqn', needed()],
    ['lun', between(0, 255, 'must be between 0 and 255, inclusive')],
  ],
  glusterfs: [
    ['endpoints', needed()],
    ['path', needed()],
  ],
  rbd: [
    ['monitors', needed()],
    ['image', needed()],
  ],
  cephfs: [['monitors', needed()]],
  flexVolume: [['driver', needed()]],
  azureFile: [
    ['secretName', needed()],
    ['shareName', needed()],
  ],
  azureDisk: [
    ['diskName', needed()],
    ['diskURI', needed()],
  ],
  vsphereVolume: [['volumePath', needed()]],
  photonPersistentDisk: [['pdID', needed()]],
  portworxVolume: [['volumeID', needed()]],
  cinder: [['volumeID', needed()]],
  fc: [],
  quobyte: [
    ['registry', needed()],
    ['volume', needed()],
  ],
  scaleIO: [
    ['gateway', needed()],
    ['system', needed()],
    ['volumeName', needed()],
  ],
  storageos: [],
  flocker: [],
  persistentVolumeClaim: [['claimName', needed()]],
  downwardAPI: [
    ['defaultMode', fileMode],
    ['items[]', downwardFile],
  ],
  projected: [
    ['defaultMode', fileMode],
    ['sources[]', projectedSource],
  ],
  csi: [
    ['driver', csiDriverName],
    ['nodePublishSecretRef.name', needed()],
  ],
  image: [
    ['reference', needed()],
    ['pullPolicy', oneOf('Always', 'IfNotPresent', 'Never')],
  ],
};

function absolute(detail: string, alsoEmpty = false): Check {
  return (value, path, errors) => {
    const text = typeof value === 'string' ? value : '';
    if ((alsoEmpty || text !== '') && !text.startsWith('/')) errors.push(invalid(path, text, detail));
  };
}

const DOWNWARD_VOLUME_FIELDS = [
  'metadata.annotations',
  'metadata.labels',
  'metadata.name',
  'metadata.namespace',
  'metadata.uid',
];

function downwardFile(value: unknown, place: string, errors: FieldError[]): void {
  if (!isObject(value)) return;
  // Upstream omits the index here.
  const path = place.replace(/\.items\[\d+\]$/, '');
  if (!value['path']) errors.push(required(`${path}.path`));
  localPath(value['path'], `${path}.path`, errors, value, value);
  const { fieldRef, resourceFieldRef } = value;
  if (isObject(fieldRef)) {
    validateDownwardField(fieldRef, `${path}.fieldRef`, DOWNWARD_VOLUME_FIELDS, errors);
    if (isObject(resourceFieldRef)) {
      errors.push(
        invalid(path, 'resource', 'fieldRef and resourceFieldRef can not be specified simultaneously'),
      );
    }
  } else if (isObject(resourceFieldRef)) {
    validateDownwardResource(resourceFieldRef, `${path}.resourceFieldRef`, true, errors);
  } else errors.push(required(path, 'one of fieldRef and resourceFieldRef is required'));
  fileMode(value['mode'], `${path}.mode`, errors, value, value);
}

const PROJECTIONS: Readonly<Record<string, readonly Rule[]>> = {
  secret: [['name', needed()], ...keyToPath],
  configMap: [['name', needed()], ...keyToPath],
  downwardAPI: [['items[]', downwardFile]],
  serviceAccountToken: [
    [
      'expirationSeconds',
      between(600, Number.MAX_SAFE_INTEGER, 'may not specify a duration less than 10 minutes'),
    ],
    [
      'expirationSeconds',
      between(Number.MIN_SAFE_INTEGER, 2 ** 32, 'may not specify a duration larger than 2^32 seconds'),
    ],
  ],
  clusterTrustBundle: [['path', needed(), localPath]],
  podCertificate: [
    ['keyType', needed()],
    ['signerName', needed()],
  ],
};

const TOKEN_PATH: readonly Rule[] = [['path', needed(), localPath]];

function projectedSource(value: unknown, path: string, errors: FieldError[]): void {
  if (!isObject(value)) return;
  const set = Object.keys(PROJECTIONS).filter((source) => isObject(value[source]));
  for (const [index, source] of set.entries()) {
    if (index > 0) errors.push(forbidden(`${path}.${source}`, 'may not specify more than 1 volume type'));
    else applyRules(value[source] as JsonObject, PROJECTIONS[source] ?? [], `${path}.${source}`, errors);
    if (source === 'serviceAccountToken') {
      const file = (value[source] as JsonObject)['path'];
      // Upstream names the field so.
      applyRules({ path: file }, TOKEN_PATH, path.replace(/\.sources\[\d+\]$/, ''), errors);
    }
  }
}

/** Checks that paths of a projected volume's files are unique. */
function checkProjectedPaths(projected: JsonObject, path: string, errors: FieldError[]): void {
  const seen = new Set<string>();
  for (const [i, source] of listAt(projected, 'sources').entries()) {
    for (const [name, value] of Object.entries(source)) {
      // Upstream does not compare the paths of tokens.
      if (!isObject(value) || name === 'serviceAccountToken') continue;
      const own = value['path'] ? [[`${path}.sources[${i}].${name}.path`, value['path']] as const] : [];
      const items = listAt(value, 'items').map(
        (item) => [`${path}.sources[${i}].${name}.path`, item['path']] as const,
      );
      for (const [field, file] of [...own, ...items]) {
        if (typeof file !== 'string' || file === '') continue;
        if (seen.has(file)) errors.push(invalid(field, file, 'conflicting duplicate paths'));
        seen.add(file);
      }
    }
  }
}

/** Validates a pod's volumes; returns the valid ones by name, which containers may mount. */
export function validateVolumes(
  spec: JsonObject,
  path: string,
  podName: string,
  errors: FieldError[],
): Map<string, JsonObject> {
  const names = new Set<string>();
  const ownClaims = new Set(
    listAt(spec, 'volumes')
      .filter(({ ephemeral }) => podName !== '' && isObject(ephemeral))
      .map(({ name }) => `${podName}-${name}`),
  );
  const sound = new Map<string, JsonObject>();
  for (const [i, volume] of listAt(spec, 'volumes').entries()) {
    const field = `${path}[${i}]`;
    const name = String(volume['name'] ?? '');
    const problems = nameProblems(name, 'label');
    const count = errors.length;
    if (name === '') errors.push(required(`${field}.name`));
    else for (const problem of problems) errors.push(invalid(`${field}.name`, name, problem));
    if (name !== '' && names.has(name)) {
      errors.push({
        field: `${field}.name`,
        reason: 'FieldValueDuplicate',
        message: `Duplicate value: "${name}"`,
      });
    }
    if (problems.length === 0) names.add(name);
    validateSource(volume, field, errors);
    if (isObject(volume['ephemeral'])) checkOwnClaim(podName, name, field, errors);
    if (errors.length === count) sound.set(name, volume);
    const claim = volume['persistentVolumeClaim'];
    const claimName = isObject(claim) ? claim['claimName'] : undefined;
    if (typeof claimName === 'string' && ownClaims.has(claimName)) {
      const detail = 'must not reference a PVC that gets created for an ephemeral volume';
      errors.push(invalid(`${field}.persistentVolumeClaim.claimName`, claimName, detail));
    }
  }
  return sound;
}

/** Checks the name of the claim that a pod's ephemeral volume is given. */
function checkOwnClaim(podName: string, volume: string, field: string, errors: FieldError[]): void {
  if (podName === '' || volume === '') return;
  const claim = `${podName}-${volume}`;
  for (const problem of nameProblems(claim, 'subdomain')) {
    errors.push(invalid(`${field}.name`, volume, `PVC name ${JSON.stringify(claim)}: ${problem}`));
  }
}

function validateSource(volume: JsonObject, field: string, errors: FieldError[]): void {
  const sources = Object.keys(volume).filter((key) => key !== 'name' && isObject(volume[key]));
  if (sources.length === 0) errors.push(required(field, 'must specify a volume type'));
  for (const [index, source] of sources.entries()) {
    const value = volume[source] as JsonObject;
    if (index > 0) {
      errors.push(forbidden(`${field}.${source}`, 'may not specify more than 1 volume type'));
      continue;
    }
    applyRules(value, VOLUME_SOURCES[source] ?? [], `${field}.${source}`, errors);
    if (source === 'projected') checkProjectedPaths(value, `${field}.projected`, errors);
    if (source === 'ephemeral') {
      const template = value['volumeClaimTemplate'];
      if (!isObject(template)) errors.push(required(`${field}.ephemeral.volumeClaimTemplate`));
      else validateClaimTemplate(template, `${field}.ephemeral.volumeClaimTemplate`, errors);
    }
  }
}

function validateClaimTemplate(template: JsonObject, path: string, errors: FieldError[]): void {
  const metadata = isObject(template['metadata']) ? template['metadata'] : {};
  validateTemplateMetadata(template, `${path}.metadata`, errors);
  for (const [name, value] of Object.entries(metadata)) {
    if (name !== 'labels' && name !== 'annotations' && !isUnset(value) && value !== 0) {
      errors.push(forbidden(`${path}.metadata.${name}`, 'cannot be set'));
    }
  }
  validateClaimSpec(template['spec'], `${path}.spec`, errors);
}
