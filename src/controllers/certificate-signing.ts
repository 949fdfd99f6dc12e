import { startInformer } from '../kube/informer.ts';
import { postReview } from '../kube/reviews.ts';
import type { KubeObject, Resource } from '../kube/types.ts';
import { type ParsedCertificateRequest, parseCertificateRequest } from '../lib/certificate-request.ts';
import { messageOf } from '../lib/errors.ts';
import type { CertificateSigner } from './certificate-signer.ts';
import { type ControllerContext, controllerQueue } from './context.ts';

/** The fields of certificates.k8s.io/v1 CertificateSigningRequest that signing reads. */
export interface CertificateSigningRequest extends KubeObject {
  readonly spec: {
    /** PEM in base64. */
    readonly request: string;
    readonly signerName: string;
    readonly usages?: readonly string[];
    readonly expirationSeconds?: number;
    readonly username?: string;
    readonly uid?: string;
    readonly groups?: readonly string[];
    readonly extra?: Readonly<Record<string, readonly string[]>>;
  };
  readonly status?: {
    readonly certificate?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

const REQUESTS: Resource<CertificateSigningRequest> = {
  group: 'certificates.k8s.io',
  version: 'v1',
  plural: 'certificatesigningrequests',
  kind: 'CertificateSigningRequest',
  namespaced: false,
};

const DAY_SECONDS = 86_400;
const MAX_SECONDS = 365 * DAY_SECONDS;
const NODES = 'system:nodes';
const NODE_PREFIX = 'system:node:';

/**
 * Checks the requirements of each signer; returns null if they are met. Source: upstream's pkg/apis/certificates
 * helpers.
 */
const DEMANDS: Readonly<
  Record<string, (request: ParsedCertificateRequest, usages: readonly string[]) => string | null>
> = {
  'kubernetes.io/kube-apiserver-client': (_request, usages) => usageProblem(usages, ['client auth'], COMMON),
  'kubernetes.io/kube-apiserver-client-kubelet': (request, usages) =>
    nodeProblem(request) ??
    (request.dnsNames.length + request.addresses.length + request.otherNames.length > 0
      ? 'subjectAltNames are not allowed'
      : usageProblem(usages, ['client auth', 'digital signature'], COMMON)),
  'kubernetes.io/kubelet-serving': (request, usages) =>
    nodeProblem(request) ??
    (request.otherNames.length > 0
      ? 'only DNS names and IP addresses are allowed as subjectAltNames'
      : request.dnsNames.length + request.addresses.length === 0
        ? 'a DNS name or an IP address is required as subjectAltName'
        : usageProblem(usages, ['server auth', 'digital signature'], COMMON)),
  'kubernetes.io/legacy-unknown': () => null,
};

const COMMON = ['digital signature', 'key encipherment'];

function nodeProblem({ organizations, commonName }: ParsedCertificateRequest): string | null {
  if (organizations.length !== 1 || organizations[0] !== NODES) return `subject organization is not ${NODES}`;
  return commonName.startsWith(NODE_PREFIX) ? null : `subject common name does not begin with ${NODE_PREFIX}`;
}

function usageProblem(
  usages: readonly string[],
  needed: readonly string[],
  allowed: readonly string[],
): string | null {
  const missing = needed.find((usage) => !usages.includes(usage));
  if (missing) return `usage ${JSON.stringify(missing)} is required`;
  const other = usages.find((usage) => !needed.includes(usage) && !allowed.includes(usage));
  return other ? `usage ${JSON.stringify(other)} is not allowed` : null;
}

/** Decides about a request: no action, failed for a reason, or a certificate. Pure except for `sign`. */
export function signingAction(
  object: CertificateSigningRequest,
  sign: CertificateSigner,
  now: Date,
): { readonly failed: string } | { readonly certificate: string } | null {
  const { spec, status } = object;
  const has = (type: string) =>
    status?.conditions?.some((one) => one.type === type && one.status === 'True') ?? false;
  if (!has('Approved') || has('Denied') || has('Failed') || status?.certificate) return null;
  const demand = DEMANDS[spec.signerName];
  if (!demand) return null;
  try {
    const request = parseCertificateRequest(Buffer.from(spec.request, 'base64').toString('utf8'));
    const usages = spec.usages ?? [];
    const problem = demand(request, usages);
    if (problem) return { failed: problem };
    const certificate = sign(request, {
      keyUsage: (['digital signature', 'key encipherment'] as const).filter((usage) =>
        usages.includes(usage),
      ),
      extendedKeyUsage: (['server auth', 'client auth'] as const).filter((usage) => usages.includes(usage)),
      from: now,
      seconds: Math.min(spec.expirationSeconds ?? MAX_SECONDS, MAX_SECONDS),
    });
    return { certificate: Buffer.from(certificate).toString('base64') };
  } catch (error) {
    return { failed: messageOf(error) };
  }
}

/** Returns the access reviews that permit automatic approval of a node's client certificate. */
export function automaticApproval(
  object: CertificateSigningRequest,
): { readonly subresource: string; readonly message: string } | null {
  const { spec, status } = object;
  if (spec.signerName !== 'kubernetes.io/kube-apiserver-client-kubelet') return null;
  if ((status?.conditions ?? []).some(({ type }) => type === 'Approved' || type === 'Denied')) return null;
  try {
    const request = parseCertificateRequest(Buffer.from(spec.request, 'base64').toString('utf8'));
    if (DEMANDS[spec.signerName]?.(request, spec.usages ?? [])) return null;
    return spec.username === request.commonName
      ? {
          subresource: 'selfnodeclient',
          message: 'Auto approving self kubelet client certificate after SubjectAccessReview.',
        }
      : {
          subresource: 'nodeclient',
          message: 'Auto approving kubelet client certificate after SubjectAccessReview.',
        };
  } catch {
    // A malformed request waits for a person to deny it.
    return null;
  }
}

/** Approves nodes' requests that the roles permit, and signs approved requests of Kubernetes' own signers. */
export function startCertificateSigning(context: ControllerContext, sign: CertificateSigner): void {
  const { client, clock } = context;
  const informer = startInformer({ ...context, resource: REQUESTS });
  const queue = controllerQueue(context, 'certificate-signing', async (name) => {
    const request = informer.get(name) ?? informer.list().find(({ metadata }) => metadata?.name === name);
    if (!request) return;
    const approval = automaticApproval(request);
    if (approval && (await mayApprove(request, approval.subresource))) {
      await write(request, 'approval', {
        conditions: [
          ...(request.status?.conditions ?? []),
          { type: 'Approved', status: 'True', reason: 'AutoApproved', message: approval.message },
        ],
      });
      return;
    }
    const action = signingAction(request, sign, new Date(clock.now()));
    if (!action) return;
    const conditions = request.status?.conditions ?? [];
    if ('certificate' in action) await write(request, 'status', { ...request.status, ...action });
    else {
      await write(request, 'status', {
        ...request.status,
        conditions: [
          ...conditions,
          { type: 'Failed', status: 'True', reason: 'SignerValidationFailure', message: action.failed },
        ],
      });
    }
  });
  const write = (request: CertificateSigningRequest, subresource: 'approval' | 'status', status: object) =>
    client.request(
      'PUT',
      `/apis/certificates.k8s.io/v1/certificatesigningrequests/${encodeURIComponent(request.metadata?.name ?? '')}/${subresource}`,
      { ...request, status },
    );
  const mayApprove = async ({ spec }: CertificateSigningRequest, subresource: string): Promise<boolean> => {
    const status = await postReview<{ readonly allowed?: boolean }>(client, 'SubjectAccessReview', {
      user: spec.username,
      uid: spec.uid,
      groups: spec.groups,
      extra: spec.extra,
      resourceAttributes: {
        group: 'certificates.k8s.io',
        resource: 'certificatesigningrequests',
        verb: 'create',
        subresource,
        version: '*',
      },
    });
    return status?.allowed === true;
  };
  const changed = ({ metadata }: CertificateSigningRequest) => queue.add(metadata?.name ?? '');
  informer.handle({ onAdd: changed, onUpdate: changed });
}
