import { type ApiObject, isObject } from '../object.ts';
import type { TokenIssuer } from '../service-account-tokens.ts';
import { SERVICE_ACCOUNT_SECRET } from '../service-account-tokens.ts';

const ACCOUNT_NAME = 'kubernetes.io/service-account.name';
const ACCOUNT_UID = 'kubernetes.io/service-account.uid';

/** Reads, writes and watches stored objects. */
export interface SecretStore {
  get(collection: string, key: string): ApiObject | undefined;
  list(collection: string): readonly ApiObject[];
  update(secret: ApiObject): void;
  remove(secret: ApiObject): void;
  /** Calls the listener with every later change. Returns a function that ends it. */
  listen(
    collection: string,
    listener: (before: ApiObject | null, after: ApiObject | null) => void,
  ): () => void;
}

/**
 * Fills Secrets of type kubernetes.io/service-account-token with a token, the namespace and the authority's
 * certificate, and removes them with their service account (upstream's tokens controller). `later` runs a task after
 * the change that caused it. Returns a function that ends it.
 */
export function fillTokenSecrets(
  store: SecretStore,
  tokens: TokenIssuer,
  authority: string,
  later: (task: () => void) => void,
): () => void {
  const check = (secret: ApiObject | null) => {
    if (secret?.['type'] !== SERVICE_ACCOUNT_SECRET) return;
    later(() => {
      const { namespace = '', name = '' } = secret.metadata;
      const current = store.get('secrets', `${namespace}/${name}`);
      if (!current || current.metadata.deletionTimestamp !== undefined) return;
      const account = accountOf(store, current);
      if (!account) store.remove(current);
      else {
        const filled = withToken(current, account, tokens, authority);
        if (filled) store.update(filled);
      }
    });
  };
  const ofAccount = (account: ApiObject | null) => {
    if (!account) return;
    for (const secret of store.list('secrets')) {
      if (
        secret.metadata.namespace === account.metadata.namespace &&
        secret.metadata.annotations?.[ACCOUNT_NAME] === account.metadata.name
      )
        check(secret);
    }
  };
  for (const secret of store.list('secrets')) check(secret);
  const ends = [
    store.listen('secrets', (_before, after) => check(after)),
    store.listen('serviceaccounts', (before, after) => {
      // Updates of an account do not affect its secrets.
      if (before === null || after === null) ofAccount(after ?? before);
    }),
  ];
  return () => {
    for (const end of ends) end();
  };
}

/** Returns the account that a secret belongs to; undefined if the account is gone or another one has its name now. */
function accountOf(store: SecretStore, secret: ApiObject): ApiObject | undefined {
  const { namespace = '', annotations } = secret.metadata;
  const account = store.get('serviceaccounts', `${namespace}/${annotations?.[ACCOUNT_NAME] ?? ''}`);
  const uid = annotations?.[ACCOUNT_UID];
  return uid !== undefined && uid !== '' && account?.metadata.uid !== uid ? undefined : account;
}

/** Returns the secret with its missing data filled in; null if it is complete. */
function withToken(
  secret: ApiObject,
  account: ApiObject,
  tokens: TokenIssuer,
  authority: string,
): ApiObject | null {
  const data = isObject(secret['data']) ? secret['data'] : {};
  const { namespace = '', name = '', uid = '' } = { ...secret.metadata, uid: account.metadata.uid };
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  const wanted = { 'ca.crt': base64(authority), namespace: base64(namespace) };
  const annotated = secret.metadata.annotations?.[ACCOUNT_UID] === uid;
  const complete = Object.entries(wanted).every(([key, value]) => data[key] === value) && data['token'];
  if (annotated && complete) return null;
  const token = data['token'] ? {} : { token: base64(tokens.issueForSecret(account, name)) };
  return {
    ...secret,
    metadata: {
      ...secret.metadata,
      annotations: { ...secret.metadata.annotations, [ACCOUNT_UID]: uid },
    },
    data: { ...data, ...wanted, ...token },
  };
}
