import { createHash, type Hash } from 'node:crypto';
import { decompressed } from './decompressed.ts';
import { applyLayer } from './layer.ts';
import { counted, createLayerBudget, type LayersTask } from './layer-limits.ts';
import { badImage } from './manifest.ts';

/**
 * Unpacks an image's layers and verifies their digests; blocks the thread. Returns the bytes of their archives. Throws
 * FairleadError "bad-archive", "bad-image", "image-too-large".
 */
export async function unpackLayers({ root, image, layers, limits }: LayersTask): Promise<number> {
  const budget = createLayerBudget(limits);
  for (const [i, { file, diffId }] of layers.entries()) {
    const hash = createHash('sha256');
    await applyLayer(root, hashed(counted(decompressed(file), budget), hash), budget, i === 0);
    const digest = `sha256:${hash.digest('hex')}`;
    if (digest !== diffId) {
      throw badImage(
        `layer ${i} of image ${image} has the contents of ${digest}; its configuration names ${diffId}`,
      );
    }
  }
  return budget.bytes;
}

async function* hashed(source: AsyncIterable<Uint8Array>, hash: Hash): AsyncGenerator<Uint8Array> {
  for await (const chunk of source) {
    hash.update(chunk);
    yield chunk;
  }
}
