import type { Client } from '../../kube/client.ts';
import { createReviewCache } from '../../kube/review-cache.ts';
import { MAX_TOKEN_BYTES, postReview, type ReviewKind } from '../../kube/reviews.ts';
import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { requestError } from './request-path.ts';

/** A user as the API server describes it. */
export interface ReviewedUser {
  readonly username: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

export interface ReviewedAccess {
  readonly verb: string;
  readonly resource: string;
  readonly subresource: string;
  readonly name: string;
}

/** Asks the API server about users, and remembers its answers for some time. */
export interface Reviewer {
  /** Returns the user of a bearer token; null: the token is not valid. */
  userOf(token: string): Promise<ReviewedUser | null>;
  mayDo(user: ReviewedUser, access: ReviewedAccess): Promise<boolean>;
}

/** As upstream's kubelet by default. */
const USER_MS = 120_000;
const ALLOWED_MS = 300_000;
const REFUSED_MS = 30_000;
const MAX_KNOWN = 1000;
const MAX_REVIEWS = 16;

export function createReviewer(client: Pick<Client, 'request'>, clock: Clock): Reviewer {
  const { remember } = createReviewCache({
    clock,
    maxKnown: MAX_KNOWN,
    maxPending: MAX_REVIEWS,
    tooMany: () => requestError('InternalError', 'too many requests are being authorized: try again'),
  });
  const ask = async <S>(kind: ReviewKind, spec: object): Promise<S | undefined> => {
    try {
      return await postReview<S>(client, kind, spec);
    } catch (error) {
      throw requestError('InternalError', `the API server does not authorize requests: ${messageOf(error)}`);
    }
  };
  return {
    async userOf(token) {
      if (token.length > MAX_TOKEN_BYTES) return null;
      const review = async () => {
        const status = await ask<{ authenticated?: boolean; user?: Partial<ReviewedUser> }>('TokenReview', {
          token,
        });
        const user = status?.authenticated === true ? status.user : undefined;
        return user === undefined
          ? null
          : { ...user, username: user.username ?? '', groups: user.groups ?? [] };
      };
      return await remember(`token ${token}`, review, (user) => (user ? USER_MS : REFUSED_MS));
    },
    mayDo({ username, ...user }, access) {
      const spec = { user: username, ...user, resourceAttributes: { ...access, version: 'v1' } };
      const review = async () => {
        const status = await ask<{ allowed?: boolean }>('SubjectAccessReview', spec);
        return status?.allowed === true;
      };
      return remember(`access ${JSON.stringify(spec)}`, review, (allowed) =>
        allowed ? ALLOWED_MS : REFUSED_MS,
      );
    },
  };
}
