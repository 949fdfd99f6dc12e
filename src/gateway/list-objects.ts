import { type Client, hasReason } from '../kube/client.ts';
import { type ConfigMap, type KubeObject, RESOURCES, type Resource, type Secret } from '../kube/types.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import { readAuthority } from './authorities.ts';
import { readCertificate } from './certificates.ts';
import { GATEWAY_KINDS, GATEWAY_VERSIONS, INGRESS_CLASSES, INGRESSES } from './follow-objects.ts';
import { ownGatewayClasses } from './gateway-reader.ts';
import { ownIngressClasses } from './ingress-class.ts';
import { type GatewayObject, type GatewayObjects, noObjects } from './objects.ts';
import { GATEWAY_GROUP } from './reference-grants.ts';
import { findReferences } from './references.ts';

/** The objects of gateways as they are now. */
export interface ListedGatewayObjects {
  readonly objects: GatewayObjects;
  /** What the user may not read; it is taken for absent, Secrets and ConfigMaps for usable. */
  readonly unread: readonly string[];
}

/** More are not read: they are taken for usable. */
const MAX_READ = 256;
const CONCURRENT_READS = 8;
/** Of the user's rights and the cluster's answers; further names would hide the rest. */
const MAX_UNREAD = 8;

/**
 * Lists the objects that decide what gateways do, once. Kinds that the cluster does not serve have none. `secure`: certificates
 * count; otherwise their Secrets are not read.
 */
export async function listGatewayObjects(client: Client, secure: boolean): Promise<ListedGatewayObjects> {
  const unread = new Set<string>();
  const list = async (resource: Resource<KubeObject>): Promise<readonly GatewayObject[] | null> => {
    try {
      return (await client.list(resource)).items as readonly GatewayObject[];
    } catch (error) {
      if (hasReason(error, 'NotFound')) return null;
      if (!hasReason(error, 'Forbidden')) throw error;
      unread.add(resource.plural);
      return [];
    }
  };
  const [ingressClasses, gatewayClasses] = await Promise.all([
    list(INGRESS_CLASSES),
    listKind(list, 'gatewayclasses'),
  ]);
  const hasIngresses = ownIngressClasses(ingressClasses ?? []).names.size > 0;
  const hasGateways = ownGatewayClasses(gatewayClasses ?? []).size > 0;
  const classes = {
    ...noObjects(),
    ingressClasses: ingressClasses ?? [],
    gatewayClasses: gatewayClasses ?? [],
  };
  if (!hasIngresses && !hasGateways) return { objects: classes, unread: [...unread] };
  const further = (Object.keys(GATEWAY_KINDS) as Kind[]).filter((kind) => kind !== 'gatewayclasses');
  const [ingresses, services, namespaces, ...kinds] = await Promise.all([
    hasIngresses ? list(INGRESSES) : [],
    list(RESOURCES.services),
    hasGateways ? list(RESOURCES.namespaces) : [],
    // Grants and policies for TLS to backends concern Ingresses as well.
    ...further.map(async (kind) => [GATEWAY_KINDS[kind][0], (await listKind(list, kind)) ?? []] as const),
  ]);
  const objects: GatewayObjects = {
    ...classes,
    ingresses: ingresses ?? [],
    services: services ?? [],
    namespaces: namespaces ?? [],
    ...Object.fromEntries(kinds),
  };
  const { certificates, authorities } = await readReferences(client, objects, secure, unread);
  return { objects: { ...objects, certificates, authorities }, unread: [...unread].slice(0, MAX_UNREAD) };
}

type Kind = keyof typeof GATEWAY_KINDS;
type List = (resource: Resource<KubeObject>) => Promise<readonly GatewayObject[] | null>;

/** Lists a kind of the Gateway API in the first version that is served; null: none is. */
async function listKind(list: List, plural: Kind): Promise<readonly GatewayObject[] | null> {
  const kind = GATEWAY_KINDS[plural][1];
  for (const version of GATEWAY_VERSIONS) {
    const namespaced = plural !== 'gatewayclasses';
    const found = await list({ group: GATEWAY_GROUP, version, plural, kind, namespaced });
    if (found !== null) return found;
  }
  return null;
}

async function readReferences(
  client: Client,
  objects: GatewayObjects,
  secure: boolean,
  unread: Set<string>,
): Promise<Pick<GatewayObjects, 'certificates' | 'authorities'>> {
  const { certificates, authorities } = findReferences(objects);
  const turns = createSemaphore(CONCURRENT_READS);
  const results = new Map<string, string | null>();
  const read = (key: string, isSecret: boolean, problemOf: (object: KubeObject) => string | null) =>
    turns.run(async () => {
      const parts = key.split('/');
      const [namespace = '', name = ''] = [parts[0], parts.at(-1)];
      try {
        const resource: Resource<KubeObject> = isSecret ? RESOURCES.secrets : RESOURCES.configMaps;
        results.set(key, problemOf(await client.get(resource, name, namespace)));
      } catch (error) {
        if (hasReason(error, 'NotFound')) {
          results.delete(key);
          return;
        }
        if (!hasReason(error, 'Forbidden')) throw error;
        unread.add(`${isSecret ? 'Secret' : 'ConfigMap'} ${namespace}/${name}`);
      }
    });
  const wanted = [...authorities, ...(secure ? certificates : [])];
  for (const key of [...authorities, ...certificates]) results.set(key, null);
  await Promise.all(
    wanted.slice(0, MAX_READ).map((key) => {
      const [, kind, name] = key.split('/');
      if (name === undefined) return read(key, true, (object) => readCertificate(object as Secret).problem);
      const isSecret = kind === 'Secret';
      return read(
        key,
        isSecret,
        (object) =>
          readAuthority(isSecret ? 'Secret' : 'ConfigMap', (object as Secret | ConfigMap).data).problem,
      );
    }),
  );
  const known = (keys: readonly string[]) =>
    new Map(
      keys.flatMap((key) => {
        const problem = results.get(key);
        return problem === undefined ? [] : [[key, problem] as const];
      }),
    );
  return { certificates: known(certificates), authorities: known(authorities) };
}
