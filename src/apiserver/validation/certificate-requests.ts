import { parseCertificateRequest } from '../../lib/certificate-request.ts';
import { messageOf } from '../../lib/errors.ts';
import { type ApiObject, at, textAt } from '../object.ts';
import { duplicate, type FieldError, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems } from './names.ts';
import { repeats } from './repeats.ts';

const USAGES = [
  'any',
  'cert sign',
  'client auth',
  'code signing',
  'content commitment',
  'crl sign',
  'data encipherment',
  'decipher only',
  'digital signature',
  'email protection',
  'encipher only',
  'ipsec end system',
  'ipsec tunnel',
  'ipsec user',
  'key agreement',
  'key encipherment',
  'microsoft sgc',
  'netscape sgc',
  'ocsp signing',
  's/mime',
  'server auth',
  'signing',
  'timestamping',
];
const MIN_SECONDS = 600;

/** Validates a new CertificateSigningRequest. */
export function validateCertificateRequest(request: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  if (before) return errors;
  const encoded = textAt(request, 'spec', 'request');
  try {
    parseCertificateRequest(Buffer.from(encoded, 'base64').toString('utf8'));
  } catch (error) {
    errors.push(invalid('spec.request', encoded, messageOf(error)));
  }
  const given = at(request, 'spec', 'usages');
  const usages = Array.isArray(given) ? given.map(String) : [];
  if (usages.length === 0) errors.push(required('spec.usages'));
  const again = repeats(usages);
  usages.forEach((usage, i) => {
    if (!USAGES.includes(usage)) errors.push(notSupported(`spec.usages[${i}]`, usage, USAGES));
    if (again.has(i)) errors.push(duplicate(`spec.usages[${i}]`, usage));
  });
  checkSignerName(textAt(request, 'spec', 'signerName'), errors);
  const seconds = at(request, 'spec', 'expirationSeconds');
  if (typeof seconds === 'number' && seconds < MIN_SECONDS) {
    const detail = `may not specify a duration less than ${MIN_SECONDS} seconds (10 minutes)`;
    errors.push(invalid('spec.expirationSeconds', seconds, detail));
  }
  return errors;
}

/** Checks "example.com/signer-name" (ValidateSignerName of upstream). */
function checkSignerName(name: string, errors: FieldError[]): void {
  const path = 'spec.signerName';
  if (name === '') {
    errors.push(required(path));
    return;
  }
  const [domain = '', signer, ...more] = name.split('/');
  if (signer === undefined || more.length > 0) {
    const detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    errors.push(invalid(path, name, detail));
    return;
  }
  const check = (text: string, form: 'label' | 'subdomain') => {
    for (const label of text.split('.')) {
      for (const problem of nameProblems(label, form)) {
        errors.push(invalid(path, text, `validating label ${JSON.stringify(label)}: ${problem}`));
      }
    }
  };
  check(domain, 'label');
  if (!domain.includes('.')) {
    errors.push(invalid(path, domain, 'should be a domain with at least two segments separated by dots'));
  }
  check(signer, 'subdomain');
}
