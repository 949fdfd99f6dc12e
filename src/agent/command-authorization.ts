import { type Client, hasReason } from '../kube/client.ts';
import { createReviewCache } from '../kube/review-cache.ts';
import { MAX_TOKEN_BYTES, postReview, type ReviewKind, reviewResource } from '../kube/reviews.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { audienceOf, type CommandVerb } from './command-rights.ts';

/** A refused request, with its HTTP status. */
export class CommandRefused extends FairleadError {
  readonly status: 401 | 403 | 429 | 503;

  constructor(status: CommandRefused['status'], message: string, hint?: string) {
    const code = status === 401 ? 'Unauthorized' : status === 403 ? 'Forbidden' : 'not-ready';
    super(message, { op: 'authorize a command', code, ...(hint === undefined ? {} : { hint }) });
    this.status = status;
  }
}

/** Decides who may use this node's command port, by reviews of the API server. */
export interface CommandAuthorization {
  /** Resolves to the user's name if the token's user may do this. Throws CommandRefused. */
  authorize(token: string | undefined, verb: CommandVerb, path: string): Promise<string>;
}

interface User {
  readonly username?: string;
  readonly uid?: string;
  readonly groups?: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

const ALLOWED_MS = 10_000;
const REFUSED_MS = 5_000;
const MAX_KNOWN = 256;
const MAX_REVIEWS = 8;

const INSTALL_HINT = 'fairlead manifests --for commands | kubectl apply -f -';

/** `client`: a client of the API server as this agent. */
export function createCommandAuthorization(
  client: Pick<Client, 'request'>,
  node: string,
  clock: Clock,
): CommandAuthorization {
  const audience = audienceOf(node);
  const { remember } = createReviewCache({
    clock,
    maxKnown: MAX_KNOWN,
    maxPending: MAX_REVIEWS,
    tooMany: () => new CommandRefused(429, 'too many requests are being authorized'),
  });

  /** Returns the user's name, or why the token's user may not do this. */
  async function review(token: string, verb: CommandVerb, path: string): Promise<string | CommandRefused> {
    const user = await authenticate(client, token, audience);
    if (user === null) return wrongToken(audience);
    const name = user.username ?? '';
    const { allowed, reason } = await mayDo(client, user, verb, path);
    if (allowed) return name;
    return new CommandRefused(
      403,
      `${name} may not ${verb} ${path}${reason ? `: ${reason}` : ''}`,
      INSTALL_HINT,
    );
  }

  return {
    async authorize(token, verb, path) {
      if (!token) throw new CommandRefused(401, 'the request has no token');
      if (token.length > MAX_TOKEN_BYTES || !isFor(token, audience)) throw wrongToken(audience);
      const result = await remember(
        `${verb} ${path} ${token}`,
        () => review(token, verb, path),
        (one) => (typeof one === 'string' ? ALLOWED_MS : REFUSED_MS),
      );
      if (typeof result !== 'string') throw result;
      return result;
    },
  };
}

const wrongToken = (audience: string) =>
  new CommandRefused(401, `the token is not valid for the audience ${audience}`);

/** Reports whether a token claims to be for an audience; the API server is asked about no others. */
function isFor(token: string, audience: string): boolean {
  const payload = token.split('.')[1] ?? '';
  try {
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8')) as { aud?: unknown } | null;
    return [claims?.aud].flat().includes(audience);
  } catch {
    return false;
  }
}

/** Returns the token's user; null: the token is not valid. */
async function authenticate(
  client: Pick<Client, 'request'>,
  token: string,
  audience: string,
): Promise<User | null> {
  const status = await ask<{
    authenticated?: boolean;
    audiences?: readonly string[];
    user?: User;
  }>(client, 'TokenReview', { token, audiences: [audience] });
  // An API server that does not know audiences answers without them.
  if (status?.authenticated && status.user && status.audiences?.includes(audience)) return status.user;
  return null;
}

async function mayDo(
  client: Pick<Client, 'request'>,
  { username, uid, groups, extra }: User,
  verb: CommandVerb,
  path: string,
): Promise<{ readonly allowed: boolean; readonly reason: string }> {
  const spec = {
    user: username,
    ...(uid === undefined ? {} : { uid }),
    groups,
    extra,
    nonResourceAttributes: { path, verb },
  };
  const status = await ask<{ allowed?: boolean; reason?: string }>(client, 'SubjectAccessReview', spec);
  return { allowed: status?.allowed === true, reason: status?.reason ?? '' };
}

async function ask<S>(
  client: Pick<Client, 'request'>,
  kind: ReviewKind,
  spec: object,
): Promise<S | undefined> {
  try {
    return await postReview<S>(client, kind, spec);
  } catch (error) {
    if (hasReason(error, 'Forbidden'))
      throw new CommandRefused(
        503,
        `the agent may not create ${reviewResource(kind)}, so it cannot authorize commands`,
        INSTALL_HINT,
      );
    throw new CommandRefused(503, `the API server does not authorize commands: ${messageOf(error)}`);
  }
}
