import type { JsonObject } from '../object.ts';
import { type FieldError, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems } from './names.ts';

const RESOURCES = [
  'limits.cpu',
  'limits.ephemeral-storage',
  'limits.memory',
  'requests.cpu',
  'requests.ephemeral-storage',
  'requests.memory',
];
const KNOWN_FIELDS =
  /^(metadata\.(name|namespace|labels|annotations|uid)|spec\.(nodeName|restartPolicy|serviceAccountName|schedulerName|hostNetwork)|status\.(phase|hostIPs?|podIPs?|nominatedNodeName))$/;

/** Checks a fieldRef of the downward API against the fields that it supports. */
export function validateDownwardField(
  reference: JsonObject,
  path: string,
  allowed: readonly string[],
  errors: FieldError[],
): void {
  const field = String(reference['fieldPath'] ?? '');
  if (field === '') {
    errors.push(required(`${path}.fieldPath`));
    return;
  }
  const subscript = /^(.*)\['(.*)'\]$/.exec(field);
  const name = subscript?.[1] ?? field;
  if (!KNOWN_FIELDS.test(name) || (reference['apiVersion'] ?? 'v1') !== 'v1') {
    errors.push(
      invalid(`${path}.fieldPath`, field, `error converting fieldPath: field label not supported: ${field}`),
    );
  } else if (subscript) {
    const key = subscript[2] ?? '';
    if (name !== 'metadata.annotations' && name !== 'metadata.labels') {
      errors.push(invalid(path, name, 'does not support subscript'));
      return;
    }
    const checked = name === 'metadata.annotations' ? key.toLowerCase() : key;
    for (const problem of nameProblems(checked, 'qualified')) errors.push(invalid(path, key, problem));
  } else if (!allowed.includes(name)) errors.push(notSupported(`${path}.fieldPath`, field, allowed));
}

/** Checks a resourceFieldRef of the downward API; in a volume it names a container. */
export function validateDownwardResource(
  reference: JsonObject,
  path: string,
  inVolume: boolean,
  errors: FieldError[],
): void {
  const resource = String(reference['resource'] ?? '');
  if (inVolume && !reference['containerName']) errors.push(required(`${path}.containerName`));
  else if (resource === '') errors.push(required(`${path}.resource`));
  else if (!RESOURCES.includes(resource) && !/^(limits|requests)\.hugepages-/.test(resource)) {
    errors.push(notSupported(`${path}.resource`, resource, RESOURCES));
  }
  const divisor = String(reference['divisor'] ?? '0');
  if (divisor === '0') return;
  const allowed = resource.endsWith('.cpu') ? /^(1m|1)$/ : /^1(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/;
  if (!allowed.test(divisor)) {
    errors.push(
      invalid(
        `${path}.divisor`,
        resource,
        `only powers of a thousand or of 1024 (or 1m with cpu) are supported`,
      ),
    );
  }
}
