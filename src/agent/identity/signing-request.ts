import { createHash, createPublicKey } from 'node:crypto';
import { type Client, hasReason } from '../../kube/client.ts';
import { startInformer } from '../../kube/informer.ts';
import { type CertificateSigningRequest, RESOURCES } from '../../kube/types.ts';
import { createCertificateRequest, parseCertificateRequest } from '../../lib/certificate-request.ts';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { CertificateTerms } from './renewal.ts';

/** The signers of nodes' certificates and the usages that they sign, for keys that encipher no keys (EC). */
export const SIGNERS = {
  client: {
    name: 'kubernetes.io/kube-apiserver-client-kubelet',
    usages: ['digital signature', 'client auth'],
  },
  serving: { name: 'kubernetes.io/kubelet-serving', usages: ['digital signature', 'server auth'] },
} as const;

export interface SigningRequestOptions {
  readonly client: Client;
  readonly signer: keyof typeof SIGNERS;
  readonly terms: CertificateTerms;
  /** EC P-256, PEM. */
  readonly key: string;
  /** The name of the request; null: the API server chooses one. */
  readonly name: string | null;
  /** Called with the request's name if it has not been answered for some seconds. */
  readonly onWaiting: (name: string) => void;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

const REPORT_AFTER_MS = 10_000;
/** As client-go: then another request is made. */
const WAIT_MS = 15 * 60_000;

/**
 * Returns the name of a node's first request: of its key and what it asks for, so that an agent that starts again finds its
 * earlier request. As the kubelet names it.
 */
export function requestName(key: string, { commonName, organizations }: CertificateTerms): string {
  const hash = createHash('sha512-256').update(createPublicKey(key).export({ type: 'spki', format: 'der' }));
  for (const part of [commonName, ...organizations, ...SIGNERS.client.usages]) hash.update(`|${part}`);
  return `node-csr-${hash.digest('base64url')}`;
}

/**
 * Requests a certificate and waits until it is signed: PEM. Throws FairleadError if the request is denied, fails, or is not
 * answered in time, and ApiError if it is not accepted.
 */
export async function obtainCertificate(options: SigningRequestOptions): Promise<string> {
  const { signal, clock } = options;
  const request = await createOrFind(options);
  const name = request.metadata?.name ?? '';
  const done = new AbortController();
  const result = Promise.withResolvers<string>();
  const look = (current: CertificateSigningRequest) => {
    try {
      const certificate = certificateOf(current);
      if (certificate !== null) result.resolve(certificate);
    } catch (error) {
      result.reject(error);
    }
  };
  const abort = () => result.reject(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  const cancels = [
    clock.after(REPORT_AFTER_MS, () => options.onWaiting(name)),
    clock.after(WAIT_MS, () =>
      result.reject(refusal(`${name} was not answered in 15 minutes`, `kubectl certificate approve ${name}`)),
    ),
  ];
  const informer = startInformer({
    ...options,
    resource: RESOURCES.certificateSigningRequests,
    fieldSelector: `metadata.name=${name}`,
    signal: AbortSignal.any([signal, done.signal]),
    onMissingRule: (rule) => rule && result.reject(refusal(rule.message)),
  });
  informer.handle({
    onAdd: look,
    onUpdate: look,
    onDelete: () => result.reject(refusal(`${name} was deleted before it was answered`)),
  });
  look(request);
  try {
    return await result.promise;
  } finally {
    done.abort();
    for (const cancel of cancels) cancel();
    signal.removeEventListener('abort', abort);
  }
}

async function createOrFind({
  client,
  signer,
  terms,
  key,
  name,
  signal,
}: SigningRequestOptions): Promise<CertificateSigningRequest> {
  const resource = RESOURCES.certificateSigningRequests;
  const { name: signerName, usages } = SIGNERS[signer];
  const request = createCertificateRequest(
    {
      commonName: terms.commonName,
      organizations: terms.organizations,
      names: terms.names,
    },
    key,
  );
  try {
    return await client.create(
      resource,
      {
        metadata: name === null ? { generateName: 'csr-' } : { name },
        spec: { request: Buffer.from(request).toString('base64'), signerName, usages: [...usages] },
      },
      { signal },
    );
  } catch (error) {
    if (name === null || !hasReason(error, 'AlreadyExists')) throw error;
  }
  const found = await client.get(resource, name, undefined, { signal });
  const { publicKey } = parseCertificateRequest(Buffer.from(found.spec.request, 'base64').toString('utf8'));
  if (publicKey.equals(createPublicKey(key).export({ type: 'spki', format: 'der' }))) return found;
  throw refusal(`${name} exists with another key`, `kubectl delete csr ${name}`);
}

/** Returns the certificate of a request, PEM; null: it is not signed yet. Throws FairleadError if it was refused. */
function certificateOf({ metadata, status }: CertificateSigningRequest): string | null {
  const name = metadata?.name ?? '';
  for (const { type, status: value, reason, message } of status?.conditions ?? []) {
    if (value !== 'True' || (type !== 'Denied' && type !== 'Failed')) continue;
    const why = [reason, message].filter(Boolean).join(': ');
    throw refusal(
      type === 'Denied' ? `${name} was denied (${why})` : `${name} could not be signed (${why})`,
      type === 'Denied' ? `kubectl delete csr ${name}, to have it requested again` : undefined,
    );
  }
  return status?.certificate ? Buffer.from(status.certificate, 'base64').toString('utf8') : null;
}

const refusal = (problem: string, hint?: string) =>
  new FairleadError(`certificate signing request: ${problem}`, {
    op: 'request certificate',
    code: 'no-certificate',
    ...(hint === undefined ? {} : { hint }),
  });
