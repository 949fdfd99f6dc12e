import { StatusError } from '../status-error.ts';
import type { AdmissionAttributes } from './plugin.ts';

/** Builds the refusal of an admission plugin in upstream's words (admission.NewForbidden). */
export function admissionForbidden(attributes: AdmissionAttributes, message: string): StatusError {
  const { group, resource } = attributes.resource;
  const { metadata } = attributes.object ?? attributes.oldObject ?? {};
  const name = attributes.name || metadata?.name || metadata?.generateName || 'Unknown';
  const qualified = group === '' ? resource : `${resource}.${group}`;
  return new StatusError(403, 'Forbidden', `${qualified} ${JSON.stringify(name)} is forbidden: ${message}`, {
    name,
    ...(group === '' ? {} : { group }),
    kind: resource,
  });
}

/** Joins several reasons like k8s.io/apimachinery's aggregate errors: without duplicates, in brackets. */
export function joinReasons(reasons: readonly string[]): string {
  const unique = [...new Set(reasons)];
  return unique.length === 1 ? (unique[0] ?? '') : `[${unique.join(', ')}]`;
}
