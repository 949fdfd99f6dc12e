import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import type { Client } from '../../kube/client.ts';
import type { Clock } from '../../lib/clock.ts';
import { createReviewer, type ReviewedUser, type Reviewer } from './access-reviews.ts';
import { parseRequestPath, requestError } from './request-path.ts';

/** The group of administrators, and of API servers that `up` and older kubeadm make: allowed without a review. */
const MASTERS = 'system:masters';
const AUTHENTICATED = 'system:authenticated';

/** Subresources of a Node by the first part of a path, as upstream's kubelet; one of them must be allowed. */
const SUBRESOURCES: Readonly<Record<string, readonly string[]>> = {
  stats: ['stats'],
  metrics: ['metrics'],
  logs: ['log'],
  pods: ['pods', 'proxy'],
  healthz: ['healthz', 'proxy'],
  configz: ['configz', 'proxy'],
  statusz: ['statusz', 'proxy'],
  // Flags are configuration.
  flagz: ['configz', 'proxy'],
};
const OTHER: readonly string[] = ['proxy'];
const VERBS: Readonly<Record<string, string>> = {
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

/** Decides who may send requests to this node: by client certificates, bearer tokens and the API server's reviews. */
export interface ClientAuthorization {
  /**
   * Returns null if the client may do this, or a promise of the decision. `isUpgrade`: the request begins a session in a
   * pod. Throws or rejects with FairleadError "Unauthorized" or "Forbidden".
   */
  authorize(request: IncomingMessage, isUpgrade: boolean): Promise<void> | null;
}

/** `client`: a client of the API server as this node. */
export function createClientAuthorization(
  client: Pick<Client, 'request'>,
  nodeName: string,
  clock: Clock,
): ClientAuthorization {
  const reviewer = createReviewer(client, clock);
  return {
    authorize(request, isUpgrade) {
      const user = certifiedUser(request.socket as TLSSocket);
      if (user?.groups.includes(MASTERS)) return null;
      const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
      if (!user && token === undefined) throw unauthorized();
      const [first = ''] = parseRequestPath(request.url).parts;
      const subresources = (Object.hasOwn(SUBRESOURCES, first) ? SUBRESOURCES[first] : undefined) ?? OTHER;
      // A session changes a pod, whatever the method that begins it.
      const verb = isUpgrade ? 'create' : (VERBS[request.method ?? ''] ?? 'get');
      return decide(reviewer, user ?? (token as string), { nodeName, verb, subresources });
    },
  };
}

async function decide(
  reviewer: Reviewer,
  credentials: ReviewedUser | string,
  {
    nodeName,
    verb,
    subresources,
  }: { readonly nodeName: string; readonly verb: string; readonly subresources: readonly string[] },
): Promise<void> {
  const user = typeof credentials === 'string' ? await reviewer.userOf(credentials) : credentials;
  if (user === null) throw unauthorized();
  for (const subresource of subresources) {
    if (await reviewer.mayDo(user, { verb, resource: 'nodes', subresource, name: nodeName })) return;
  }
  throw requestError(
    'Forbidden',
    `${user.username} may not ${verb} nodes/${subresources.join(' or nodes/')} of ${nodeName}`,
  );
}

/** Returns the user of a client certificate of the cluster; null: there is none. */
function certifiedUser(socket: TLSSocket): ReviewedUser | null {
  if (!socket.authorized) return null;
  const subject: unknown = socket.getPeerCertificate().subject;
  if (typeof subject !== 'object' || subject === null) return null;
  const { CN, O } = subject as Record<string, string | string[] | undefined>;
  const [username = ''] = [CN ?? []].flat();
  return username === '' ? null : { username, groups: [...[O ?? []].flat(), AUTHENTICATED] };
}

const unauthorized = () =>
  requestError('Unauthorized', 'a client certificate or a token of the cluster is required');

/**
 * Throws FairleadError for all but administrators and API servers that are such. For tunnels into this node's network, which
 * upstream's kubelet does not have and no role describes.
 */
export function requireMaster(socket: TLSSocket): void {
  const user = certifiedUser(socket);
  if (!user) throw unauthorized();
  if (!user.groups.includes(MASTERS))
    throw requestError('Forbidden', `only the group ${MASTERS} may open tunnels through a node`);
}
