import { messageOf } from '../lib/errors.ts';
import type { Launch } from './container-config.ts';
import { type KubeletReason, reasonOf } from './kubelet-error.ts';
import { pullCredentials } from './pull-secrets.ts';
import type { Image } from './rootfs.ts';
import type { WorkerContext } from './worker-context.ts';

export interface ImageEvents {
  /** `reason`: as in the status of a waiting container. */
  failed(reason: KubeletReason, message: string): void;
  /** Called after a pull. */
  changed(): void;
}

/** The image for a container's next start. */
export class WantedImage {
  readonly #context: Pick<WorkerContext, 'images' | 'client' | 'events'>;
  #pulling = false;
  /** For the next start: with imagePullPolicy Always, every start contacts the registry. */
  #pulled: Image | null = null;

  constructor(context: Pick<WorkerContext, 'images' | 'client' | 'events'>) {
    this.#context = context;
  }

  /** Returns the image if it is present; otherwise starts a pull and returns null. */
  find({ container, pod }: Launch, listener: ImageEvents): Image | null {
    const { images, client, events } = this.#context;
    if (this.#pulling) return null;
    const name = JSON.stringify(container.image ?? '');
    try {
      const image = this.#pulled ?? images.present(container);
      this.#pulled = null;
      if (image) return image;
    } catch (error) {
      listener.failed(reasonOf(error, 'ImageInspectError'), messageOf(error));
      return null;
    }
    this.#pulling = true;
    events.event(pod, 'Normal', 'Pulling', `Pulling image ${name}`);
    images
      .pull(container, (reference) => pullCredentials(client, pod, reference))
      .then(
        (image) => {
          this.#pulled = image;
          events.event(pod, 'Normal', 'Pulled', `Successfully pulled image ${name}`);
        },
        (error: unknown) => listener.failed('ErrImagePull', messageOf(error)),
      )
      .finally(() => {
        this.#pulling = false;
        listener.changed();
      });
    return null;
  }
}
