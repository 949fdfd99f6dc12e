import type { Client } from './client.ts';

const GROUPS = {
  TokenReview: 'authentication.k8s.io',
  SubjectAccessReview: 'authorization.k8s.io',
} as const;

/** A longer token is not one of this cluster, and is not reviewed. */
export const MAX_TOKEN_BYTES = 16_384;

export type ReviewKind = keyof typeof GROUPS;

/** Returns a kind of review as RBAC names it: "tokenreviews.authentication.k8s.io". */
export const reviewResource = (kind: ReviewKind): string => `${kind.toLowerCase()}s.${GROUPS[kind]}`;

/** Has the API server review `spec`; returns the status of its answer. Throws what the client throws. */
export async function postReview<S>(
  client: Pick<Client, 'request'>,
  kind: ReviewKind,
  spec: object,
): Promise<S | undefined> {
  const apiVersion = `${GROUPS[kind]}/v1`;
  const path = `/apis/${apiVersion}/${kind.toLowerCase()}s`;
  return ((await client.request('POST', path, { apiVersion, kind, spec })) as { status?: S }).status;
}
