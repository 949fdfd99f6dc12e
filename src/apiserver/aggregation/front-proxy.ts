import { createAuthority } from '../../lib/pki.ts';
import type { Kind } from '../kind.ts';
import { equal } from '../object.ts';
import type { ResourceStore } from '../resource-store.ts';
import type { Store } from '../store.ts';

const NAME = 'extension-apiserver-authentication';
const CLIENT = 'front-proxy-client';

/** The certificate that identifies this server to aggregated servers, and the authority that signed it. PEM. */
export interface FrontProxy {
  readonly cert: string;
  readonly key: string;
  readonly authority: string;
}

/**
 * Creates a front proxy's identity. It is valid for the lifetime of the process: other servers read its authority from
 * a ConfigMap.
 */
export function createFrontProxy(now: Date): FrontProxy {
  const authority = createAuthority('front-proxy-ca', now);
  const { cert, key } = authority.issue({ commonName: CLIENT, names: [], usage: 'client' });
  return { cert, key, authority: authority.cert };
}

/**
 * Publishes, in the ConfigMap that every API server reads, the authorities of the users' client certificates and of the
 * front proxy's.
 */
export function publishFrontProxy(
  store: Store,
  resources: ResourceStore,
  configMaps: Kind,
  options: { readonly clientAuthority: string; readonly frontProxy: FrontProxy },
): void {
  const list = (...values: string[]) => JSON.stringify(values);
  const data = {
    'client-ca-file': options.clientAuthority,
    'requestheader-allowed-names': list(CLIENT),
    'requestheader-client-ca-file': options.frontProxy.authority,
    'requestheader-extra-headers-prefix': list('X-Remote-Extra-'),
    'requestheader-group-headers': list('X-Remote-Group'),
    'requestheader-uid-headers': list('X-Remote-Uid'),
    'requestheader-username-headers': list('X-Remote-User'),
  };
  const existing = store.get(configMaps.collection, `kube-system/${NAME}`)?.object;
  if (!existing) {
    resources.create(configMaps, 'kube-system', {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: NAME },
      data,
    });
  } else if (!equal(existing['data'], data)) {
    resources.update(configMaps, 'kube-system', NAME, (current) => ({ ...current, data }));
  }
}
