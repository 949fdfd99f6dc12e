import { isObject, type JsonObject, textAt } from '../../object.ts';
import { StatusError } from '../../status-error.ts';
import type { ReviewedAs } from '../equivalent-object.ts';
import type { AdmissionAttributes } from '../plugin.ts';

/** Builds an admission.k8s.io/v1 AdmissionReview that contains a request. */
export function reviewRequest(uid: string, attributes: AdmissionAttributes, as: ReviewedAs): JsonObject {
  const { user, subresource, namespace, name, operation, dryRun, options } = attributes;
  const request: Record<string, unknown> = {
    uid,
    kind: as.kind,
    resource: as.resource,
    ...(subresource === '' ? {} : { subResource: subresource }),
    requestKind: attributes.kind,
    requestResource: attributes.resource,
    ...(subresource === '' ? {} : { requestSubResource: subresource }),
    ...(name === '' ? {} : { name }),
    ...(namespace === '' ? {} : { namespace }),
    operation,
    userInfo: {
      username: user.name,
      ...(user.uid === undefined ? {} : { uid: user.uid }),
      groups: user.groups,
      ...(user.extra === undefined ? {} : { extra: user.extra }),
    },
    object: as.object,
    oldObject: as.oldObject,
    dryRun,
    options,
  };
  return { kind: 'AdmissionReview', apiVersion: 'admission.k8s.io/v1', request } as JsonObject;
}

/** The response of a webhook. */
export interface ReviewResponse {
  readonly allowed: boolean;
  readonly status: JsonObject | null;
  /** A JSON patch; null if there is none. */
  readonly patch: unknown[] | null;
  readonly warnings: readonly string[];
}

/** Parses the response of a webhook. Throws Error with the reason if it is not a valid AdmissionReview. */
export function readResponse(body: unknown, uid: string, mutating: boolean): ReviewResponse {
  const response = isObject(body) ? body['response'] : undefined;
  if (!isObject(body) || !isObject(response)) throw new Error('webhook response was absent');
  const { apiVersion, kind } = body;
  if (kind !== 'AdmissionReview' || apiVersion !== 'admission.k8s.io/v1') {
    throw new Error(
      `expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got ${String(apiVersion ?? '/')}, Kind=${String(kind ?? '')}`,
    );
  }
  if (response['uid'] !== uid)
    throw new Error(
      `expected response.uid=${JSON.stringify(uid)}, got ${JSON.stringify(response['uid'] ?? '')}`,
    );
  const encoded = textAt(response, 'patch');
  const patchType = textAt(response, 'patchType');
  if (!mutating && (encoded !== '' || patchType !== ''))
    throw new Error('validating webhook may not return response.patch');
  if (mutating && (encoded === '') !== (patchType === ''))
    throw new Error(
      encoded === ''
        ? 'webhook returned response.patchType but not response.patch'
        : 'webhook returned response.patch but not response.patchType',
    );
  if (patchType !== '' && patchType !== 'JSONPatch')
    throw new Error(`invalid response.patchType of ${JSON.stringify(patchType)}`);
  const patch: unknown = encoded === '' ? null : JSON.parse(Buffer.from(encoded, 'base64').toString('utf8'));
  if (patch !== null && !Array.isArray(patch)) throw new Error('response.patch is not a list of operations');
  return {
    allowed: response['allowed'] === true,
    status: isObject(response['status']) ? response['status'] : null,
    patch,
    warnings: Array.isArray(response['warnings']) ? response['warnings'].map(String) : [],
  };
}

/** Builds the refusal of a webhook in upstream's words (webhookerrors.ToStatusErr). */
export function deniedBy(webhook: string, status: JsonObject | null): StatusError {
  const head = `admission webhook ${JSON.stringify(webhook)} denied the request`;
  const message = textAt(status, 'message');
  const reason = textAt(status, 'reason');
  const code = typeof status?.['code'] === 'number' && status['code'] >= 400 ? status['code'] : 400;
  const text =
    message !== ''
      ? `${head}: ${message}`
      : reason !== ''
        ? `${head}: ${reason}`
        : `${head} without explanation`;
  const details = status?.['details'];
  return new StatusError(code, reason, text, isObject(details) ? details : undefined);
}
