import { agentAccessObjects } from '../apiserver/authorization/bootstrap-policy.ts';
import { type ControllerParts, type StartOptions, startControllers } from '../controllers/start.ts';
import { startBesideControllers } from '../controllers/start-beside.ts';
import { LOCAL_PATH } from '../controllers/storage/provisioning.ts';
import { type Client, hasReason, readBody } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import { DEFAULT_CLASS_ANNOTATION } from '../kube/well-known-labels.ts';
import { pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { RealControlPlane } from './control-plane-programs.ts';
import { followPodRoutes } from './control-plane-routes.ts';

const POLL_MS = 50;
const REPORT_AFTER_MS = 10_000;

export interface BesideOptions extends Omit<StartOptions, 'parts'> {
  /** Of `client`. */
  readonly transport: Transport;
  readonly realControlPlane: RealControlPlane;
  /** Called when the API server answers, and has the objects that agents need. */
  readonly onReady: () => void;
}

/**
 * Does what a real control plane leaves to others: the rights of agents, routes to pods, addresses of load balancers,
 * volumes of the default StorageClass, and the work of the programs that it lacks.
 */
export async function runBesideControlPlane(options: BesideOptions): Promise<void> {
  const { client, realControlPlane } = options;
  await answered(options);
  await createObjects(client);
  options.onReady();
  followPodRoutes(options);
  const { controllerManager, scheduler } = realControlPlane;
  const parts: ControllerParts = { controllers: !controllerManager, scheduler: !scheduler };
  const running = [
    ...(parts.controllers || parts.scheduler ? [startControllers({ ...options, parts })] : []),
    ...(parts.controllers ? [] : [startBesideControllers(options)]),
  ];
  await Promise.all(running.map(({ ready }) => ready));
}

/** Waits until the API server has created its default objects. */
async function answered({ transport, clock, logger, signal }: BesideOptions): Promise<void> {
  const since = clock.now();
  let isReported = false;
  for (;;) {
    const problem = await readinessProblem(transport);
    if (problem === null) return;
    signal.throwIfAborted();
    if (!isReported && clock.now() - since > REPORT_AFTER_MS) {
      logger.warn({}, `kube-apiserver is not ready yet: ${problem}`);
      isReported = true;
    }
    await pause(clock, POLL_MS, signal);
  }
}

async function readinessProblem(transport: Transport): Promise<string | null> {
  try {
    const { status, body } = await transport({ method: 'GET', path: '/readyz', headers: {} });
    const text = await readBody(body);
    return status === 200 ? null : text.trim();
  } catch (error) {
    return messageOf(error);
  }
}

/** Creates what the embedded API server creates in addition to upstream's: the rights of agents, a default StorageClass. */
async function createObjects(client: Client): Promise<void> {
  for (const object of agentAccessObjects()) {
    const { name = '', namespace } = object.metadata;
    await client.patch(resourceOf(object), name, 'apply', object, {
      ...(namespace === undefined ? {} : { namespace }),
      fieldManager: 'fairlead',
      force: true,
    });
  }
  const { items } = await client.list(RESOURCES.storageClasses);
  if (items.length > 0) return;
  try {
    await client.create(RESOURCES.storageClasses, {
      metadata: {
        name: 'standard',
        annotations: { [DEFAULT_CLASS_ANNOTATION]: 'true' },
      },
      provisioner: LOCAL_PATH,
      reclaimPolicy: 'Delete',
      volumeBindingMode: 'WaitForFirstConsumer',
    });
  } catch (error) {
    if (!hasReason(error, 'AlreadyExists')) throw error;
  }
}

/** Returns the resource of an object of a kind whose plural is regular. */
function resourceOf({ apiVersion = 'v1', kind = '', metadata }: KubeObject): Resource<KubeObject> {
  const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  const namespaced = metadata?.namespace !== undefined;
  return { group, version, plural: `${kind.toLowerCase()}s`, kind, namespaced };
}
