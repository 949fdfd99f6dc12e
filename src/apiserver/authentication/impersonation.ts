import type { AuthorizationAttributes, Authorizer } from '../authorization/authorizer.ts';
import { authorizationForbidden } from '../authorization/forbidden.ts';
import { badRequest, type StatusError } from '../status-error.ts';
import type { Impersonator } from './authenticator.ts';
import { ANONYMOUS, AUTHENTICATED_GROUP, type User } from './user.ts';

const UNAUTHENTICATED_GROUP = 'system:unauthenticated';
const AUTHENTICATION_GROUP = 'authentication.k8s.io';
const EXTRA_PREFIX = 'impersonate-extra-';
const ACCOUNT = /^system:serviceaccount:([^:]+):([^:]+)$/;
const NODE = /^system:node:(.+)$/;

type Headers = Readonly<Record<string, string | undefined>>;

/** The user that a request impersonates. */
interface ImpersonatedUser {
  readonly name: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/**
 * Lets users impersonate others: with the verb `impersonate` on the user, its groups, uid and extra fields; or,
 * constrained, with `impersonate:MODE` on the user and `impersonate-on:MODE:VERB` on the resource of the request
 * (KEP-5284).
 */
export function createImpersonator(authorizer: Authorizer): Impersonator {
  return {
    async impersonate(user, headers, request) {
      const wanted = readHeaders(headers);
      if (wanted === null) return user;
      const refused = await firstRefusal(authorizer, legacyChecks(user, wanted));
      if (refused !== null) {
        const narrow = constrainedChecks(user, wanted, request);
        if (narrow === null) throw refused;
        const narrower = await firstRefusal(authorizer, narrow);
        if (narrower !== null) throw narrower;
      }
      return impersonated(wanted);
    },
  };
}

/**
 * Returns null if the request does not impersonate a user. Throws StatusError 400 for groups, uid or extra without a
 * user.
 */
function readHeaders(headers: Headers): ImpersonatedUser | null {
  // The client names the keys: with a prototype, "__proto__" would be lost.
  const extra: Record<string, string[]> = Object.create(null);
  for (const [header, value] of Object.entries(headers)) {
    if (!header.startsWith(EXTRA_PREFIX) || value === undefined) continue;
    extra[decoded(header.slice(EXTRA_PREFIX.length))] = values(value);
  }
  const name = headers['impersonate-user'] ?? '';
  const uid = headers['impersonate-uid'] ?? '';
  const groups = values(headers['impersonate-group']);
  if (name !== '') return { name, uid, groups, extra };
  if (uid === '' && groups.length === 0 && Object.keys(extra).length === 0) return null;
  throw badRequest(`requested ${goUser({ name, uid, groups, extra })} without impersonating a user name`);
}

/** Splits the values of a repeatable header: Node joins them with a comma and a space. */
const values = (header: string | undefined): string[] =>
  header === undefined || header === '' ? [] : header.split(', ');

function decoded(key: string): string {
  try {
    return decodeURIComponent(key);
  } catch {
    // As upstream: a key that is not escaped properly is used unchanged.
    return key;
  }
}

/** Formats the user in Go's notation, as in upstream's refusal. */
function goUser({ name, uid, groups, extra }: ImpersonatedUser): string {
  const list = (items: readonly string[]) =>
    `[]string{${items.map((item) => JSON.stringify(item)).join(', ')}}`;
  const keys = Object.entries(extra).map(([key, items]) => `${JSON.stringify(key)}:${list(items)}`);
  const groupText = groups.length === 0 ? '[]string(nil)' : list(groups);
  const extraText =
    keys.length === 0 ? 'map[string][]string(nil)' : `map[string][]string{${keys.join(', ')}}`;
  return `&user.DefaultInfo{Name:${JSON.stringify(name)}, UID:${JSON.stringify(uid)}, Groups:${groupText}, Extra:${extraText}}`;
}

interface Subject {
  readonly apiGroup: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
}

const check = (user: User, verb: string, subject: Subject): AuthorizationAttributes => ({
  ...subject,
  user,
  verb,
  isResourceRequest: true,
  apiVersion: 'v1',
  path: '',
});

/** Returns the subjects that the user must be allowed to impersonate: the user, its groups, uid and extra fields. */
function subjects(wanted: ImpersonatedUser, apiGroup: string): Subject[] {
  const plain = (resource: string, name: string, group = apiGroup): Subject => ({
    apiGroup: group,
    resource,
    subresource: '',
    namespace: '',
    name,
  });
  const account = ACCOUNT.exec(wanted.name);
  return [
    account
      ? { ...plain('serviceaccounts', account[2] ?? ''), namespace: account[1] ?? '' }
      : plain('users', wanted.name),
    ...(wanted.uid === '' ? [] : [plain('uids', wanted.uid, AUTHENTICATION_GROUP)]),
    ...wanted.groups.map((group) => plain('groups', group)),
    ...Object.entries(wanted.extra).flatMap(([key, items]) =>
      items.map((item) => ({ ...plain('userextras', item, AUTHENTICATION_GROUP), subresource: key })),
    ),
  ];
}

const legacyChecks = (user: User, wanted: ImpersonatedUser) =>
  subjects(wanted, '').map((subject) => check(user, 'impersonate', subject));

/**
 * Returns null for nodes and service accounts with groups, uid or extra fields: these require the verb `impersonate`.
 */
function constrainedChecks(
  user: User,
  wanted: ImpersonatedUser,
  request: AuthorizationAttributes,
): AuthorizationAttributes[] | null {
  const node = NODE.exec(wanted.name);
  const onlyName = wanted.groups.length === 0 && wanted.uid === '' && Object.keys(wanted.extra).length === 0;
  const account = ACCOUNT.test(wanted.name);
  if ((account || node) && !onlyName) return null;
  const mode = account ? 'serviceaccount' : node ? 'arbitrary-node' : 'user-info';
  const all = subjects(wanted, AUTHENTICATION_GROUP);
  const renamed =
    mode === 'arbitrary-node'
      ? all.map((subject) => ({ ...subject, resource: 'nodes', name: node?.[1] ?? '' }))
      : all;
  return [
    { ...request, user, verb: `impersonate-on:${mode}:${request.verb}` },
    ...renamed.map((subject) => check(user, `impersonate:${mode}`, subject)),
  ];
}

async function firstRefusal(
  authorizer: Authorizer,
  checks: readonly AuthorizationAttributes[],
): Promise<StatusError | null> {
  for (const attributes of checks) {
    const { verdict, reason } = await authorizer.authorize(attributes);
    if (verdict !== 'allow') return authorizationForbidden(attributes, reason);
  }
  return null;
}

function impersonated({ name, uid, groups, extra }: ImpersonatedUser): User {
  const account = ACCOUNT.exec(name);
  const own =
    account && groups.length === 0
      ? ['system:serviceaccounts', `system:serviceaccounts:${account[1]}`]
      : [...groups];
  if (name === ANONYMOUS.name) {
    if (!own.includes(UNAUTHENTICATED_GROUP)) own.push(UNAUTHENTICATED_GROUP);
  } else if (!own.includes(AUTHENTICATED_GROUP) && !own.includes(UNAUTHENTICATED_GROUP)) {
    own.push(AUTHENTICATED_GROUP);
  }
  return {
    name,
    ...(uid === '' ? {} : { uid }),
    groups: own,
    ...(Object.keys(extra).length > 0 ? { extra } : {}),
  };
}
