import { type InformerOptions, startInformer } from '../kube/informer.ts';
import { type ConfigMap, type KubeObject, RESOURCES, type Resource, type Secret } from '../kube/types.ts';
import { type AuthorityResult, readAuthority } from './authorities.ts';
import { type CertificateResult, readCertificate } from './certificates.ts';
import type { References } from './references.ts';
import type { AuthorityKey, CertificateKey } from './route-map.ts';

type SharedOptions = Pick<InformerOptions<KubeObject>, 'client' | 'clock' | 'random' | 'logger' | 'signal'>;
type Result = CertificateResult | AuthorityResult;

/** Secrets and ConfigMaps that are followed one by one: the right to read them is for those that objects name. */
export interface FollowedReferences {
  /** Follows exactly these. */
  follow(references: References): void;
  /** Resolves when each that is followed now is known to exist or not, or cannot be read. */
  known(): Promise<unknown>;
  /** Those that exist. */
  readonly certificates: ReadonlyMap<CertificateKey, Result>;
  readonly authorities: ReadonlyMap<AuthorityKey, Result>;
}

/** More are not followed: each has a request of its own that stays open. */
const MAX_FOLLOWED = 2000;

export function followReferences(
  options: SharedOptions & { readonly onChange: () => void },
): FollowedReferences {
  const certificates = createFollower(options, (key) => {
    const [namespace = '', name = ''] = key.split('/');
    return {
      resource: RESOURCES.secrets,
      namespace,
      name,
      read: (object) => readCertificate(object as Secret),
    };
  });
  const authorities = createFollower(options, (key) => {
    const [namespace = '', kind = '', name = ''] = key.split('/');
    const isSecret = kind === 'Secret';
    return {
      resource: isSecret ? RESOURCES.secrets : RESOURCES.configMaps,
      namespace,
      name,
      read: (object) => readAuthority(isSecret ? 'Secret' : 'ConfigMap', (object as Secret | ConfigMap).data),
    };
  });
  return {
    follow(references) {
      certificates.follow(references.certificates);
      authorities.follow(references.authorities);
    },
    known: () => Promise.all([certificates.known(), authorities.known()]),
    certificates: certificates.results,
    authorities: authorities.results,
  };
}

interface Target {
  readonly resource: Resource<KubeObject>;
  readonly namespace: string;
  readonly name: string;
  readonly read: (object: KubeObject) => Result;
}

function createFollower(
  options: SharedOptions & { readonly onChange: () => void },
  targetOf: (key: string) => Target,
) {
  const followed = new Map<string, { readonly end: AbortController; readonly known: Promise<unknown> }>();
  const results = new Map<string, Result>();
  const start = (key: string) => {
    const { resource, namespace, name, read } = targetOf(key);
    const end = new AbortController();
    const refused = Promise.withResolvers<void>();
    const informer = startInformer({
      ...options,
      resource,
      namespace,
      fieldSelector: `metadata.name=${name}`,
      signal: AbortSignal.any([options.signal, end.signal]),
      onMissingRule: () => refused.resolve(),
    });
    informer.synced.catch(() => {});
    const set = (object: KubeObject | null) => {
      if (end.signal.aborted) return;
      if (object) results.set(key, read(object));
      else results.delete(key);
      options.onChange();
    };
    informer.handle({ onAdd: set, onUpdate: set, onDelete: () => set(null) });
    followed.set(key, { end, known: Promise.race([informer.synced, refused.promise]) });
  };
  return {
    follow(keys: readonly string[]) {
      const wanted = new Set(shareByNamespace(keys, MAX_FOLLOWED));
      for (const [key, { end }] of followed) {
        if (wanted.has(key)) continue;
        end.abort();
        followed.delete(key);
        results.delete(key);
      }
      for (const key of wanted) if (!followed.has(key)) start(key);
    },
    known: () => Promise.allSettled([...followed.values()].map(({ known }) => known)),
    results,
  };
}

/** Returns as many keys ("NAMESPACE/…") as given, equally many of each namespace: none takes the place of another. */
export function shareByNamespace(keys: readonly string[], most: number): readonly string[] {
  if (keys.length <= most) return keys;
  const groups = [...Map.groupBy(keys, (key) => key.split('/')[0] ?? '').values()];
  const chosen: string[] = [];
  for (let i = 0; chosen.length < most; i++)
    for (const group of groups) {
      const key = group[i];
      if (key !== undefined && chosen.length < most) chosen.push(key);
    }
  return chosen;
}
