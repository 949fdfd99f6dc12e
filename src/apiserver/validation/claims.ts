import { quantityNano } from '../../kube/quantity-text.ts';
import { isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems, validateLabelSelector } from './names.ts';

export const ACCESS_MODES = ['ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOnce', 'ReadWriteOncePod'];

/** Checks the access modes of a volume or claim; ReadWriteOncePod must be the only one. */
export function validateAccessModes(spec: JsonObject, path: string, errors: FieldError[], detail = ''): void {
  const modes = listAt(spec, 'accessModes').map(String);
  if (modes.length === 0) errors.push(required(`${path}.accessModes`, detail));
  for (const mode of modes) {
    if (!ACCESS_MODES.includes(mode)) errors.push(notSupported(`${path}.accessModes`, mode, ACCESS_MODES));
  }
  if (modes.includes('ReadWriteOncePod') && modes.some((mode) => mode !== 'ReadWriteOncePod')) {
    errors.push(forbidden(`${path}.accessModes`, 'may not use ReadWriteOncePod with other access modes'));
  }
}

/** Validates the spec of a PersistentVolumeClaim, also inside templates. */
export function validateClaimSpec(spec: unknown, path: string, errors: FieldError[]): void {
  const claim: JsonObject = isObject(spec) ? spec : {};
  validateAccessModes(claim, path, errors, 'at least 1 access mode is required');
  errors.push(...validateLabelSelector(claim['selector'], `${path}.selector`));
  const resources = isObject(claim['resources']) ? claim['resources'] : {};
  const requests = isObject(resources['requests']) ? resources['requests'] : {};
  const storage = requests['storage'];
  if (storage === undefined) errors.push(required(`${path}.resources[storage]`));
  else if ((quantityNano(storage) ?? 0n) <= 0n) {
    errors.push(invalid(`${path}.resources[storage]`, storage, 'must be greater than zero'));
  }
  for (const field of ['storageClassName', 'volumeAttributesClassName']) {
    const name = claim[field];
    if (typeof name !== 'string' || name === '') continue;
    for (const problem of nameProblems(name, 'subdomain'))
      errors.push(invalid(`${path}.${field}`, name, problem));
  }
  const mode = claim['volumeMode'];
  if (mode !== undefined && mode !== 'Block' && mode !== 'Filesystem') {
    errors.push(notSupported(`${path}.volumeMode`, mode, ['Block', 'Filesystem']));
  }
  for (const field of ['dataSource', 'dataSourceRef']) {
    const source = claim[field];
    if (!isObject(source)) continue;
    for (const part of ['name', 'kind']) if (!source[part]) errors.push(required(`${path}.${field}.${part}`));
    if (!source['apiGroup'] && source['kind'] && source['kind'] !== 'PersistentVolumeClaim') {
      errors.push(
        invalid(
          `${path}.${field}`,
          source['kind'],
          "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ),
      );
    }
  }
}
