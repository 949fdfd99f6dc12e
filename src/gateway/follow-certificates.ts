import { type InformerOptions, startInformer } from '../kube/informer.ts';
import { type KubeObject, RESOURCES, splitKey } from '../kube/types.ts';
import { type CertificateResult, readCertificate } from './certificates.ts';
import type { CertificateKey } from './route-map.ts';

type SharedOptions = Pick<InformerOptions<KubeObject>, 'client' | 'clock' | 'random' | 'logger' | 'signal'>;

/** Certificates that are followed one by one: the right to read them is for those that objects name. */
export interface FollowedCertificates {
  /** Follows exactly these. */
  follow(keys: readonly CertificateKey[]): void;
  /** Resolves when each that is followed now is known to exist or not, or cannot be read. */
  known(): Promise<unknown>;
  /** Those that exist. */
  readonly results: ReadonlyMap<CertificateKey, CertificateResult>;
}

/** More are not followed: each has a request of its own that stays open. */
const MAX_FOLLOWED = 2000;

export function followCertificates(
  options: SharedOptions & { readonly onChange: () => void },
): FollowedCertificates {
  const followed = new Map<CertificateKey, { readonly end: AbortController; readonly known: Promise<unknown> }>();
  const results = new Map<CertificateKey, CertificateResult>();
  const start = (key: CertificateKey) => {
    const { namespace, name } = splitKey(key);
    const end = new AbortController();
    const refused = Promise.withResolvers<void>();
    const informer = startInformer({
      ...options,
      resource: RESOURCES.secrets,
      namespace,
      fieldSelector: `metadata.name=${name}`,
      signal: AbortSignal.any([options.signal, end.signal]),
      onMissingRule: () => refused.resolve(),
    });
    informer.synced.catch(() => {});
    const set = (result: CertificateResult | null) => {
      if (end.signal.aborted) return;
      if (result) results.set(key, result);
      else results.delete(key);
      options.onChange();
    };
    informer.handle({
      onAdd: (secret) => set(readCertificate(secret)),
      onUpdate: (secret, before) => {
        if (JSON.stringify(secret.data) !== JSON.stringify(before.data)) set(readCertificate(secret));
      },
      onDelete: () => set(null),
    });
    followed.set(key, { end, known: Promise.race([informer.synced, refused.promise]) });
  };
  return {
    follow(keys) {
      const wanted = new Set(keys.slice(0, MAX_FOLLOWED));
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
