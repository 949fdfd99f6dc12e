import { getCACertificates, setDefaultCACertificates } from 'node:tls';

/** The launcher sets it: Node.js then leaves out the public authorities, which it else reads at the start of every process. */
const WITHOUT_AUTHORITIES = '--use-openssl-ca';

let isDone = !process.execArgv.includes(WITHOUT_AUTHORITIES);

/**
 * Makes TLS clients that name no authority trust those that Node.js trusts by default: the public ones, and those in
 * NODE_EXTRA_CA_CERTS. Must be called before such a connection, also by `fetch`.
 */
export function trustPublicAuthorities(): void {
  if (isDone) return;
  setDefaultCACertificates([...getCACertificates('bundled'), ...getCACertificates('extra')]);
  isDone = true;
}
