import { renameSync, writeFileSync } from 'node:fs';
import { hasCode, messageOf } from '../../lib/errors.ts';
import { KubeletError } from '../kubelet-error.ts';
import { downloadBlob } from './blob-download.ts';
import type { ImageStore, StoredImage } from './image-store.ts';
import { type Descriptor, findManifest } from './manifest.ts';
import { parseReference } from './reference.ts';
import { openRegistry, type Registry, type RegistryOptions } from './registry.ts';
import { endpointsOf } from './registry-endpoint.ts';

const PARALLEL = 3;

/**
 * Pulls an image from the mirrors of its registry, or from the registry if none has it, into the store: from a list of
 * manifests the one for this machine, then missing blobs. Throws FairleadError "InvalidImageName", "ErrImagePull",
 * "bad-image".
 */
export async function pullImage(
  store: ImageStore,
  name: string,
  options: RegistryOptions & { readonly now: Date },
): Promise<StoredImage> {
  const reference = parseReference(name);
  const endpoints = endpointsOf(reference, options);
  const last = endpoints.pop();
  const failed: string[] = [];
  for (const endpoint of endpoints) {
    try {
      return await pullFrom(store, name, openRegistry(reference, options, endpoint), options.now);
    } catch (error) {
      // What a mirror lacks, or sends wrongly, the registry may have.
      if (options.signal?.aborted || !hasCode(error, 'ErrImagePull', 'bad-image')) throw error;
      failed.push(
        `mirror ${endpoint.url.host}: ${messageOf(error).replace(/^failed to pull image "[^"]*": /, '')}`,
      );
    }
  }
  try {
    return await pullFrom(store, name, openRegistry(reference, options, last), options.now);
  } catch (error) {
    if (failed.length === 0 || !(error instanceof KubeletError)) throw error;
    throw new KubeletError(error.reason, `${error.message}; ${failed.join('; ')}`, {
      op: error.op,
      ...(error.hint === undefined ? {} : { hint: error.hint }),
      object: name,
      cause: error,
    });
  }
}

async function pullFrom(
  store: ImageStore,
  name: string,
  registry: Registry,
  now: Date,
): Promise<StoredImage> {
  const reference = parseReference(name);
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
  return store.add(name, manifest, { digest, listDigest, source: 'registry', now });
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
