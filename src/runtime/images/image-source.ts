import { join } from 'node:path';
import { watchPath } from '../../kernel/path-watch.ts';
import type { Container } from '../../kube/types.ts';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { HostRoot } from '../host-root.ts';
import { KubeletError } from '../kubelet-error.ts';
import type { BuiltinImage, PullElsewhere } from '../options.ts';
import { builtinImage, type Image } from '../rootfs.ts';
import { pullImage } from './image-pull.ts';
import type { ImageStore } from './image-store.ts';
import { defaultPullPolicy, formatReference, type ImageReference, parseReference } from './reference.ts';
import type { RegistryCredentials } from './registry.ts';

/** The source of a node's images: built in, loaded, or from a registry. */
export interface ImageSource {
  /**
   * Returns the image for a container if it is present and need not be checked. Null: it must be pulled. Throws
   * KubeletError "InvalidImageName", "ErrImageNeverPull".
   */
  present(container: WantedImageName): Image | null;
  /**
   * Pulls an image from its registry; concurrent requests for the same image share one pull. Throws KubeletError
   * "ErrImagePull".
   */
  pull(container: WantedImageName, credentials: Credentials): Promise<Image>;
  /** Calls back when any process has stored an image. */
  onChange(listener: () => void): void;
  close(): void;
}

/** Looks up the credentials for a registry, by the pod's imagePullSecrets; null: none. */
export type Credentials = (reference: ImageReference) => Promise<RegistryCredentials | null>;

/** An image's name and its pull policy. */
export type WantedImageName = Pick<Container, 'image' | 'imagePullPolicy'>;

export interface ImageSourceOptions {
  readonly store: ImageStore;
  readonly builtins: Readonly<Record<string, BuiltinImage>>;
  /** The files of built-in images. */
  readonly hostRoot: () => HostRoot;
  readonly plainHttp: readonly string[];
  /** Absent: this process pulls. */
  readonly pull?: PullElsewhere;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

export function createImageSource(options: ImageSourceOptions): ImageSource {
  const { store, builtins, clock } = options;
  const pulls = new Map<string, Promise<Image>>();
  const listeners: (() => void)[] = [];
  const names = () => {
    for (const listener of listeners) listener();
  };
  const watcher = watchPath(join(store.folder, 'names'), names, clock);
  return {
    present(container) {
      const name = container.image ?? '';
      const builtin = builtinImage(name, builtins, options.hostRoot);
      if (builtin) return builtin;
      const reference = parseReference(name);
      const policy = container.imagePullPolicy ?? defaultPullPolicy(reference);
      const stored = store.find(name);
      if (stored && (policy !== 'Always' || stored.source === 'archive')) return store.open(stored);
      if (policy === 'Never') {
        throw new KubeletError(
          'ErrImageNeverPull',
          `Container image ${JSON.stringify(name)} is not present with pull policy of Never`,
          {
            op: 'find image',
            hint: 'fairlead image load FILE',
            object: name,
          },
        );
      }
      return null;
    },
    async pull(container, credentials) {
      const reference = parseReference(container.image ?? '');
      const name = formatReference(reference);
      const identity = await credentials(reference);
      // A pod without access must not share another pod's pull: one pull per identity.
      const key = JSON.stringify([name, identity]);
      const pull = async (): Promise<Image> => {
        try {
          const registry = { credentials: identity, plainHttp: options.plainHttp, signal: options.signal };
          const here = async () =>
            void (await pullImage(store, name, { ...registry, now: new Date(clock.now()) }));
          await (options.pull?.(name, identity, here) ?? here());
          return opened(store, name);
        } catch (error) {
          throw pullFailure(name, error, Object.keys(builtins));
        } finally {
          pulls.delete(key);
        }
      };
      const running = pulls.get(key) ?? pull();
      pulls.set(key, running);
      return await running;
    },
    onChange: (listener) => listeners.push(listener),
    close: () => watcher.close(),
  };
}

function opened(store: ImageStore, name: string): Image {
  const stored = store.find(name);
  if (stored) return store.open(stored);
  throw new KubeletError('ErrImagePull', `image ${name} was removed after its pull`, {
    op: 'pull image',
    object: name,
  });
}

/** Lists the present images, since a name without a registry is often a misspelled built-in one. */
function pullFailure(name: string, error: unknown, builtins: readonly string[]): KubeletError {
  const known = ['host', ...builtins].map((one) => JSON.stringify(one)).join(', ');
  const hint = error instanceof FairleadError && error.hint !== undefined ? `; ${error.hint}` : '';
  return new KubeletError(
    'ErrImagePull',
    `${messageOf(error)}${hint} (built-in images of this node: ${known}; load others with "fairlead image load FILE", or on the machine with "fairlead image pull IMAGE")`,
    { op: 'pull image', object: name, cause: error },
  );
}
