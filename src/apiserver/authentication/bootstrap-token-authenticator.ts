import { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../lib/clock.ts';
import { type ApiObject, isObject } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { Authenticator } from './authenticator.ts';
import { AUTHENTICATED_GROUP } from './user.ts';

const SECRET_TYPE = 'bootstrap.kubernetes.io/token';
const GROUP = 'system:bootstrappers';
const EXTRA_GROUP = /^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$/;

/**
 * Recognises bootstrap tokens, with which machines join as nodes: Secrets of kube-system. Other tokens, and those that have
 * expired or are not for authentication, are left to the other authenticators. Source: upstream's
 * plugin/pkg/auth/authenticator/token/bootstrap.
 */
export function createBootstrapTokenAuthenticator(
  view: Pick<ObjectView, 'get'>,
  clock: Pick<Clock, 'now'>,
): Authenticator {
  return {
    authenticate({ headers }) {
      const [, id = '', secret = ''] =
        /^Bearer +([a-z0-9]{6})\.([a-z0-9]{16})$/i.exec(headers['authorization'] ?? '') ?? [];
      const stored = id === '' ? undefined : view.get('secrets', `kube-system/bootstrap-token-${id}`);
      if (!stored || stored['type'] !== SECRET_TYPE || stored.metadata.deletionTimestamp !== undefined)
        return null;
      const field = fieldsOf(stored);
      const isRight = field('token-id') === id && isEqual(field('token-secret'), secret);
      const expiration = field('expiration');
      // An unreadable time counts as past.
      const isExpired = expiration !== '' && !(Date.parse(expiration) > clock.now());
      if (!isRight || isExpired || field('usage-bootstrap-authentication') !== 'true') return null;
      const extra = field('auth-extra-groups').split(',').filter(Boolean);
      if (!extra.every((group) => EXTRA_GROUP.test(group))) return null;
      const groups = [...new Set([GROUP, ...extra, AUTHENTICATED_GROUP])];
      return { name: `system:bootstrap:${id}`, groups };
    },
  };
}

function fieldsOf(secret: ApiObject): (name: string) => string {
  const data = secret['data'];
  return (name) => {
    const value = isObject(data) ? data[name] : undefined;
    return typeof value === 'string' ? Buffer.from(value, 'base64').toString('utf8') : '';
  };
}

function isEqual(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
