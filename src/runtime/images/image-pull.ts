import { renameSync, writeFileSync } from 'node:fs';
import { downloadBlob } from './blob-download.ts';
import type { ImageStore, StoredImage } from './image-store.ts';
import { type Descriptor, findManifest } from './manifest.ts';
import { parseReference } from './reference.ts';
import { openRegistry, type RegistryOptions } from './registry.ts';

const PARALLEL = 3;

/**
 * Pulls an image from its registry into the store: from a list of manifests the one for this machine, then missing
 * blobs. Throws FairleadError "InvalidImageName", "ErrImagePull", "bad-image".
 */
export async function pullImage(
  store: ImageStore,
  name: string,
  options: RegistryOptions & { readonly now: Date },
): Promise<StoredImage> {
  const reference = parseReference(name);
  const registry = openRegistry(reference, options);
  const first = await registry.manifest(reference.digest || reference.tag);
  const listDigest = first.digest;
  const known = store.find(name);
  if (known?.listDigest === listDigest || known?.digest === listDigest) return known;
  const read = async (digest: string) => (await registry.manifest(digest)).text;
  const { manifest, text, entry } = await findManifest(first.text, `image ${name}`, read);
  const digest = entry?.digest ?? listDigest;
  store.checkSize(manifest, name);
  await inParallel([manifest.config, ...manifest.layers], (blob) => downloadBlob(store, registry, blob));
  const fresh = store.temporary('manifest');
  writeFileSync(fresh, text, { mode: 0o600 });
  renameSync(fresh, store.blobPath(digest));
  return store.add(name, manifest, { digest, listDigest, source: 'registry', now: options.now });
}

async function inParallel(
  blobs: readonly Descriptor[],
  run: (blob: Descriptor) => Promise<void>,
): Promise<void> {
  const todo = [...new Map(blobs.map((blob) => [blob.digest, blob])).values()];
  const worker = async () => {
    for (let blob = todo.shift(); blob; blob = todo.shift()) await run(blob);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}
