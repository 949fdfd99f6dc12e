import { parseQuantity } from '../kube/quantity.ts';
import type { Container, Pod } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { treeUsage } from './files/file-tree.ts';

/** The minimum interval between two measurements of a pod's files; measuring takes at most a twentieth of the time. */
const MIN_INTERVAL_MS = 2000;

/** The folders of a pod's files that count. */
export interface StorageFolders {
  /** Returns the folder of a volume, by its name. */
  readonly volume: (name: string) => string;
  /** Returns the folders of a container's writable layers and logs. */
  readonly container: (name: string) => readonly string[];
}

const containersOf = (pod: Pod): Container[] => [
  ...(pod.spec?.initContainers ?? []),
  ...(pod.spec?.containers ?? []),
];
const limitOf = (container: Container) => {
  const text = (container.resources?.limits as Record<string, unknown> | undefined)?.['ephemeral-storage'];
  return text === undefined ? null : { text: String(text), bytes: parseQuantity(String(text)) };
};
/** Returns volumes on disk with a limit: volumes in memory have a file system of that size. */
const limitedVolumes = (pod: Pod) =>
  (pod.spec?.volumes ?? []).flatMap(({ name, emptyDir }) =>
    emptyDir?.sizeLimit && emptyDir.medium !== 'Memory'
      ? [{ name, text: String(emptyDir.sizeLimit), bytes: parseQuantity(String(emptyDir.sizeLimit)) }]
      : [],
  );

/** Reports whether any limit applies to the pod's files on disk. */
export function hasStorageLimits(pod: Pod): boolean {
  return limitedVolumes(pod).length > 0 || containersOf(pod).some((container) => limitOf(container) !== null);
}

/** Returns the limit that the pod's files on disk exceed, in upstream's words; null if they exceed none. */
async function storageExcess(pod: Pod, folders: StorageFolders): Promise<string | null> {
  for (const { name, text, bytes } of limitedVolumes(pod)) {
    if ((await treeUsage(folders.volume(name))) > bytes) {
      return `Usage of EmptyDir volume ${JSON.stringify(name)} exceeds the limit ${JSON.stringify(text)}.`;
    }
  }
  for (const container of containersOf(pod)) {
    const limit = limitOf(container);
    if (!limit) continue;
    const used = await Promise.all(folders.container(container.name).map(treeUsage));
    if (used.reduce((sum, one) => sum + one, 0) > limit.bytes) {
      return `Container ${container.name} exceeded its local ephemeral storage limit ${JSON.stringify(limit.text)}.`;
    }
  }
  return null;
}

export interface StorageWatch {
  readonly clock: Clock;
  /** Calls back once after this many milliseconds, unless the pod ends before. */
  readonly after: (ms: number, run: () => void) => void;
  /** Reports whether the pod runs and is to continue. */
  readonly isActive: () => boolean;
  /** Called when the pod exceeds a limit; it is not measured again. */
  readonly exceeded: (message: string) => void;
  /** Called when a measurement has failed. */
  readonly failed: (error: unknown) => void;
}

/** Measures repeatedly whether the pod's files exceed their limits. */
export function watchStorage(pod: () => Pod, folders: StorageFolders, watch: StorageWatch): void {
  const measure = async () => {
    const begun = watch.clock.now();
    let excess: string | null = null;
    try {
      excess = await storageExcess(pod(), folders);
    } catch (error) {
      watch.failed(error);
    }
    if (!watch.isActive()) return;
    if (excess !== null) watch.exceeded(excess);
    else watch.after(Math.max(MIN_INTERVAL_MS, 20 * (watch.clock.now() - begun)), () => void measure());
  };
  watch.after(MIN_INTERVAL_MS, () => void measure());
}
