import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { certificatesOf } from '../lib/der.ts';
import { messageOf } from '../lib/errors.ts';

/** The launcher sets it: Node.js then leaves out the public authorities, which it else reads at the start of every process. */
const WITHOUT_AUTHORITIES = '--use-openssl-ca';
/** Has the value of NODE_EXTRA_CA_CERTS in processes that read this file only when they need it. */
const EXTRA_FILE = 'FAIRLEAD_EXTRA_CA_CERTS';

const isWithout = (): boolean => process.execArgv.includes(WITHOUT_AUTHORITIES);
let isDone = !isWithout();

/**
 * Makes TLS clients that name no authority trust those that Node.js trusts by default: the public ones, and those in
 * NODE_EXTRA_CA_CERTS. Must be called before such a connection, also by `fetch`.
 */
export function trustPublicAuthorities(): void {
  if (isDone) return;
  setDefaultCACertificates([
    ...getCACertificates('bundled'),
    ...getCACertificates('extra'),
    ...extraAuthorities(process.env[EXTRA_FILE]),
  ]);
  isDone = true;
}

/**
 * Returns an environment for another process of Fairlead, without the files of authorities, which Node.js and OpenSSL would
 * read for its first connection, 8 ms for usual ones, also if that connection trusts another authority. The process reads
 * NODE_EXTRA_CA_CERTS when it calls `trustPublicAuthorities`; Node.js does not trust those of SSL_CERT_FILE by default.
 */
export function withoutAuthorities(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  if (!isWithout()) return environment;
  const { NODE_EXTRA_CA_CERTS: extra, SSL_CERT_FILE: _file, SSL_CERT_DIR: _folder, ...rest } = environment;
  return extra === undefined ? rest : { ...rest, [EXTRA_FILE]: extra };
}

/** Returns the absolute path of the user's own authorities, NODE_EXTRA_CA_CERTS; null: there are none. */
export function authoritiesFile(environment: NodeJS.ProcessEnv): string | null {
  const file = environment[EXTRA_FILE] || environment['NODE_EXTRA_CA_CERTS'];
  return file ? resolve(file) : null;
}

/** Returns an environment for a process of this program that trusts the authorities in a file; null: only the public ones. */
export function withAuthorities(environment: NodeJS.ProcessEnv, file: string | null): NodeJS.ProcessEnv {
  const { NODE_EXTRA_CA_CERTS: _, [EXTRA_FILE]: __, ...rest } = environment;
  if (file === null) return rest;
  return { ...rest, [isWithout() ? EXTRA_FILE : 'NODE_EXTRA_CA_CERTS']: file };
}

function extraAuthorities(file: string | undefined): string[] {
  if (file === undefined) return [];
  try {
    return certificatesOf(readFileSync(file, 'utf8'));
  } catch (error) {
    // As Node.js warns.
    process.emitWarning(`failed to read the authorities of NODE_EXTRA_CA_CERTS: ${messageOf(error)}`);
    return [];
  }
}
