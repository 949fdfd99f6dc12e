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
import { createImageSource } from './images/image-source.ts';
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

/** Starts running this node's pods: adopts those of an earlier agent, ends those whose objects are gone. */
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
  let hostRoot: HostRoot | null = null;
  const images = createImageSource({
    store: openImageStore(options.images.folder, options.images.limits),
    builtins: options.builtinImages,
    hostRoot: () => {
      hostRoot ??= makeHostRoot(join(paths.root, 'host-root'));
      return hostRoot;
    },
    plainHttp: options.images.plainHttp,
    ...(options.images.pull ? { pull: options.images.pull } : {}),
    clock,
    signal,
  });
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
  for (const uid of readdirSync(podsDir)) {
    const pod = readSavedPod(join(podsDir, uid));
    if (pod) workers.set(uid, new PodWorker(context, pod));
    else {
      removePodLogs(options.stateDir, uid);
      unmountBelow(join(podsDir, uid));
      await removeTree(join(podsDir, uid));
    }
  }
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
    const phase = pod.status?.phase;
    const over = phase === 'Succeeded' || phase === 'Failed';
    if (over && pod.metadata?.deletionTimestamp === undefined) return;
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
  const served = {
    list: () =>
      [...workers.values()].filter(({ uid }) => existsSync(join(podsDir, uid))).map((one) => one.served),
    find: (namespace: string, name: string) =>
      [...workers.values()].find(
        ({ pod, uid }) =>
          pod.metadata?.namespace === namespace &&
          pod.metadata?.name === name &&
          existsSync(join(podsDir, uid)),
      )?.served,
  };
  const server = await serveKubelet(options, served, groups?.root ?? null);
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
