import { setOwnMember } from '../../lib/own-member.ts';
import type { JsonObject } from '../object.ts';
import { authorizationAttributes } from '../requests/authorization-attributes.ts';
import { isTrue } from '../requests/request-info.ts';
import type { ResourceVerb } from '../routes/resource-verb.ts';
import type { ApiServices, ResourceContext, ResourceHandler, Subresource } from '../services.ts';
import { StatusError } from '../status-error.ts';
import { admit } from '../verbs/write.ts';

const STREAM_VERBS: readonly ResourceVerb[] = ['create', 'get'];

/** Runs admission for a request that connects and stores nothing; `kind`: the kind of its options. */
export async function admitConnect(
  services: ApiServices,
  context: ResourceContext,
  kind: string,
): Promise<void> {
  await admit(services, context, {
    operation: 'CONNECT',
    object: { kind, apiVersion: 'v1', metadata: {}, ...connectOptions(context.query) },
    oldObject: null,
    options: {},
    dryRun: false,
    kind: { group: '', version: 'v1', kind },
  });
}

/** Converts the query to an options object: switches are booleans, command words and ports are lists. */
function connectOptions(query: URLSearchParams): JsonObject {
  const options: JsonObject = {};
  for (const [name, value] of query) {
    if (SWITCHES.has(name)) options[name] = isTrue(value);
    else if (name === 'command') options[name] = query.getAll(name);
    else if (name === 'ports') options[name] = query.getAll(name).map(Number);
    else setOwnMember(options, name, value);
  }
  return options;
}

const SWITCHES = new Set(['stdin', 'stdout', 'stderr', 'tty']);

/**
 * Requires the right to `create` the subresource. A WebSocket's handshake is a GET, and so was authorized as `get`, which
 * roles for reading contain (feature gate AuthorizePodWebsocketUpgradeCreatePermission). Throws StatusError 403 in
 * upstream's words.
 */
async function requireCreate(services: ApiServices, context: ResourceContext): Promise<void> {
  const { info, request, user, kind, name } = context;
  if (info.verb === 'create' || (request.internal && user === request.user)) return;
  const attributes = { ...authorizationAttributes(context), verb: 'create' };
  const { verdict, reason } = await services.authorizer.authorize(attributes);
  if (verdict === 'allow') return;
  const message = `${kind.plural} ${JSON.stringify(name)} is forbidden: ${reason}`;
  throw new StatusError(403, 'Forbidden', message, { name, kind: kind.plural });
}

/** Builds a subresource of a pod that its node serves. */
function podStream(name: string, kind: string): Subresource {
  const connect: ResourceHandler = async (context, services) => {
    await admitConnect(services, context, kind);
    await requireCreate(services, context);
    return services.nodes.podStream(context, name);
  };
  return {
    name,
    kind: { group: '', version: 'v1', kind },
    handlers: {},
    connect,
    connectVerbs: STREAM_VERBS,
  };
}

export const EXEC = podStream('exec', 'PodExecOptions');
export const ATTACH = podStream('attach', 'PodAttachOptions');
export const PORT_FORWARD = podStream('portforward', 'PodPortForwardOptions');

export const LOG: Subresource = {
  name: 'log',
  kind: null,
  handlers: { get: (context, services) => services.nodes.podStream(context, 'log') },
};
