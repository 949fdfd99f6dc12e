import type { TLSSocket } from 'node:tls';
import { requestError } from './request-path.ts';

/** The group of the API server's own identity. */
const API_SERVER_GROUP = 'system:masters';

/**
 * Throws FairleadError "Unauthorized" for clients without a certificate of the cluster, and "Forbidden" for all but the
 * API server: it authorizes its users (`nodes/proxy`, `pods/exec` and so on), and other nodes and users with
 * certificates must not bypass that by contacting the node directly.
 */
export function authorizeClient(socket: TLSSocket): void {
  if (!socket.authorized)
    throw requestError('Unauthorized', 'a client certificate of the cluster is required');
  const groups = socket.getPeerCertificate().subject?.O as string | string[] | undefined;
  if (![groups ?? []].flat().includes(API_SERVER_GROUP)) {
    throw requestError(
      'Forbidden',
      'only the API server may send requests to a node: send them to the API server',
    );
  }
}
