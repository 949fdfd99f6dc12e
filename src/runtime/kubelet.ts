import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { readCapabilities } from '../kernel/capabilities.ts';
import { watchPath } from '../kernel/path-watch.ts';
import { spreadFolders } from '../kernel/spread-folders.ts';
import { hasReason } from '../kube/client.ts';
import { createEventRecorder } from '../kube/events.ts';
import { startInformer } from '../kube/informer.ts';
import { shareReads } from '../kube/shared-reads.ts';
import { keyOf, type Pod, RESOURCES } from '../kube/types.ts';
import { hasCode } from '../lib/errors.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import { readControlGroups } from './control-groups.ts';
import { openDeviceAccess } from './device-access.ts';
import { removeExecFolder } from './exec-files.ts';
import { removeTree } from './files/file-tree.ts';
import { type HostRoot, makeHostRoot } from './host-root.ts';
import { createImageSource, type ImageSource } from './images/image-source.ts';
import { openImageStore } from './images/image-store.ts';
import { nodeCapacity } from './node-capacity.ts';
import { makeNodeLogs, removePodLogs } from './node-logs.ts';
import { NodeResources } from './node-resources.ts';
import { prepareRuntime } from './oci-runtime.ts';
import type { KubeletOptions } from './options.ts';
import { podProcesses } from './pod-processes.ts';
import { PodWorker } from './pod-worker.ts';
import { unmountBelow } from './runtime-state.ts';
import { sweepSandboxes } from './sandbox.ts';
import { serveKubelet } from './server/kubelet-server.ts';
import { statusWriter } from './status-writer.ts';
import type { WorkerContext } from './worker-context.ts';

/** Runs the pods that are bound to one node. */
export interface Kubelet {
  /** Resolves when the server listens and the node's pods are known. */
  readonly ready: Promise<void>;
  /** Stops watching; all pods keep running. */
  close(): Promise<void>;
}

function openImages({ images, builtinImages, clock, signal }: KubeletOptions, root: string): ImageSource {
  let hostRoot: HostRoot | null = null;
  return createImageSource({
    store: openImageStore(images.folder, images.limits),
    builtins: builtinImages,
    hostRoot: () => {
      hostRoot ??= makeHostRoot(join(root, 'host-root'));
      return hostRoot;
    },
    plainHttp: images.plainHttp,
    ...(images.pull ? { pull: images.pull } : {}),
    clock,
    signal,
  });
}

/** Returns the pods, by their UIDs, whose folders an earlier agent left; removes other folders. */
async function savedPods(stateDir: string, podsDir: string): Promise<Map<string, Pod>> {
  const pods = new Map<string, Pod>();
  for (const uid of readdirSync(podsDir)) {
    const pod = readSavedPod(join(podsDir, uid));
    if (pod) pods.set(uid, pod);
    else {
      removePodLogs(stateDir, uid);
      unmountBelow(join(podsDir, uid));
      await removeTree(join(podsDir, uid));
    }
  }
  return pods;
}

const isOver = ({ status }: Pod): boolean => status?.phase === 'Succeeded' || status?.phase === 'Failed';

/** Returns the pods that the server shows, which are the pods with a folder. */
function servedPods(workers: ReadonlyMap<string, PodWorker>, podsDir: string) {
  const served = () => [...workers.values()].filter(({ uid }) => existsSync(join(podsDir, uid)));
  return {
    list: () => served().map((one) => one.served),
    find: (namespace: string, name: string) =>
      served().find(({ pod: { metadata } }) => metadata?.namespace === namespace && metadata.name === name)
        ?.served,
  };
}

/** Starts running this node's pods: adopts the pods of an earlier agent, and ends pods whose objects are gone. */
export async function startKubelet(options: KubeletOptions): Promise<Kubelet> {
  const { client, nodeName, stateDir, logger, clock, random, signal } = options;
  const podsDir = join(stateDir, 'pods');
  const isNew = mkdirSync(podsDir, { recursive: true, mode: 0o700 }) !== undefined;
  spreadFolders(podsDir);
  const groups = readControlGroups();
  const paths = prepareRuntime(stateDir, groups);
  // Of execs that a kill ended together with the runtime before.
  removeExecFolder(stateDir);
  const events = createEventRecorder({ client, component: 'kubelet', host: nodeName, clock, logger, signal });
  const workers = new Map<string, PodWorker>();
  const statuses = statusWriter(options);
  const images = openImages(options, paths.root);
  images.onChange(() => {
    for (const worker of workers.values()) worker.retryImages();
  });
  // A pod may be bound before this node sees its own new resources.
  options.extendedResources?.onChange(() => {
    for (const worker of workers.values()) worker.wake();
  });
  const allocatable = nodeCapacity(stateDir, options.maxPods);
  const context: WorkerContext = {
    options,
    images,
    allocatable,
    resources: new NodeResources(allocatable, options.extendedResources?.current),
    client,
    reader: shareReads(client, clock),
    paths,
    processes: podProcesses({
      ...{ options, paths, groups },
      boundingSet: readCapabilities('CapBnd'),
      devices: openDeviceAccess(groups, logger),
      starts: createSemaphore(2 * availableParallelism()),
    }),
    events,
    publish: statuses.publish,
    async finalize(pod) {
      const { uid = '', name = '', namespace = '' } = pod.metadata ?? {};
      await statuses.flushed(uid);
      try {
        await client.delete(RESOURCES.pods, name, { namespace, gracePeriodSeconds: 0, uid });
      } catch (error) {
        // Already gone, or replaced by a newer pod of this name.
        if (!hasReason(error, 'NotFound', 'Conflict')) throw error;
      }
      workers.delete(uid);
      statuses.forget(uid);
      // A late event must not restore it.
      if (informer.get(keyOf(pod))?.metadata?.uid === uid) finalized.add(uid);
    },
  };
  const finalized = new Set<string>();

  makeNodeLogs(options.stateDir);
  if (!isNew) sweepSandboxes(podsDir);
  // Sandboxes of an earlier agent are adopted before the API server is asked: their containers may end at any time.
  for (const [uid, pod] of await savedPods(stateDir, podsDir)) workers.set(uid, new PodWorker(context, pod));
  await options.network.collect(new Set(workers.keys()));

  const informer = startInformer({
    client,
    resource: RESOURCES.pods,
    fieldSelector: `spec.nodeName=${nodeName}`,
    clock,
    random,
    logger,
    signal,
  });
  const accept = (pod: Pod) => {
    const uid = pod.metadata?.uid ?? '';
    if (finalized.has(uid)) return;
    const worker = workers.get(uid);
    if (worker) {
      worker.update(pod);
      return;
    }
    if (isOver(pod) && pod.metadata?.deletionTimestamp === undefined) return;
    const fresh = new PodWorker(context, pod);
    workers.set(uid, fresh);
    fresh.wake();
  };
  informer.handle({
    onAdd: accept,
    onUpdate: accept,
    onDelete(pod) {
      const uid = pod.metadata?.uid ?? '';
      finalized.delete(uid);
      workers.get(uid)?.remove();
      statuses.forget(uid);
    },
  });
  const exits = watchPath(
    paths.exits,
    (file) => {
      for (const worker of workers.values())
        if (file === null || file.startsWith(worker.uid.slice(0, 13))) worker.wake();
    },
    clock,
  );
  const server = await serveKubelet(options, servedPods(workers, podsDir), groups?.root ?? null);
  const ready = informer.synced.then(() => {
    const known = new Set(informer.list().map((pod) => pod.metadata?.uid));
    for (const [uid, worker] of workers) {
      if (!known.has(uid)) worker.remove();
      else worker.wake();
    }
  });
  ready.catch(() => {});
  return {
    ready,
    async close() {
      exits.close();
      images.close();
      for (const worker of workers.values()) worker.release();
      await server.close();
    },
  };
}

function readSavedPod(folder: string): Pod | null {
  try {
    return JSON.parse(readFileSync(join(folder, 'pod.json'), 'utf8')) as Pod;
  } catch (error) {
    if (hasCode(error, 'ENOENT') || error instanceof SyntaxError) return null;
    throw error;
  }
}
