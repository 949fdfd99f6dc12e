import type { ParsedCertificateRequest } from '../lib/certificate-request.ts';

/** Signs a request with the cluster's authority; returns the certificate, PEM. */
export type CertificateSigner = (
  request: ParsedCertificateRequest,
  terms: {
    readonly keyUsage: readonly ('digital signature' | 'key encipherment')[];
    readonly extendedKeyUsage: readonly ('server auth' | 'client auth')[];
    readonly from: Date;
    readonly seconds: number;
  },
) => string;
