import type { ResourceContext, ResourceHandler, ResourceVerb, Subresource } from '../routes/resource.ts';
import type { ApiServices } from '../services.ts';
import { admit } from '../verbs/write.ts';

const STREAM_VERBS: readonly ResourceVerb[] = ['create', 'get'];

/** Shows admission a request that connects to something and stores nothing; `kind`: its options' kind. */
export async function admitConnect(
  services: ApiServices,
  context: ResourceContext,
  kind: string,
): Promise<void> {
  const entries = [...context.query].map(([name, value]) => [name, value] as const);
  await admit(services, context, {
    operation: 'CONNECT',
    object: { kind, apiVersion: 'v1', metadata: {}, ...Object.fromEntries(entries) },
    oldObject: null,
    options: {},
    dryRun: false,
    kind: { group: '', version: 'v1', kind },
  });
}

/** A subresource of a pod that its node answers. */
function podStream(name: string, kind: string): Subresource {
  const connect: ResourceHandler = async (context, services) => {
    await admitConnect(services, context, kind);
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
