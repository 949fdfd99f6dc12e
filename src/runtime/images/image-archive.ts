import { createHash } from 'node:crypto';
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { readAtMost } from '../../kernel/bounded-file.ts';
import { FairleadError } from '../../lib/errors.ts';
import { decompressed } from './decompressed.ts';
import type { ImageStore, StoredImage } from './image-store.ts';
import { counted, createLayerBudget, LAYER_LIMITS } from './layer-limits.ts';
import {
  badImage,
  type Descriptor,
  findManifest,
  type ImageManifest,
  MAX_MANIFEST_BYTES,
} from './manifest.ts';
import { readTar } from './tar-reader.ts';

/**
 * Loads the images of an archive, optionally compressed with gzip or zstd: an OCI image layout (image-layout.md), or the
 * output of `docker save`. `name` is for archives with one unnamed image. Throws FairleadError
 * "bad-archive", "bad-image", ENOENT.
 */
export async function loadImageArchive(
  store: ImageStore,
  file: string,
  options: { readonly name?: string; readonly now: Date },
): Promise<StoredImage[]> {
  const found = statSync(file, { throwIfNoEntry: false });
  if (!found)
    throw new FairleadError(`cannot read ${file}: no such file`, {
      op: 'load image',
      code: 'ENOENT',
      object: file,
    });
  if (found.isDirectory()) return await loadFolder(store, file, options, 'copy');
  const folder = store.temporary('archive');
  mkdirSync(folder, { mode: 0o700 });
  try {
    await extract(folder, file);
    return await loadFolder(store, folder, options, 'move');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Layouts have three folders; docker's archives of some versions a few more. */
const MAX_DEPTH = 8;

/** Only files, folders and (in old docker archives) links inside the archive are valid. */
async function extract(folder: string, file: string): Promise<void> {
  const budget = createLayerBudget({ ...LAYER_LIMITS, depth: MAX_DEPTH });
  for await (const entry of readTar(counted(decompressed(file), budget))) {
    budget.entry(entry.path, entry.linkPath);
    const path = inside(folder, entry.path);
    switch (entry.type) {
      case 'directory':
        mkdirSync(path, { recursive: true });
        break;
      case 'file':
        mkdirSync(dirname(path), { recursive: true });
        await pipeline(entry.body, createWriteStream(path, { flags: 'wx', mode: 0o600 }));
        break;
      case 'symlink':
      case 'link': {
        mkdirSync(dirname(path), { recursive: true });
        const target = entry.type === 'link' ? entry.linkPath : join(dirname(entry.path), entry.linkPath);
        symlinkSync(inside(folder, target), path);
        break;
      }
      default:
        throw badArchive(`${entry.path} is a ${entry.type}`);
    }
  }
}

async function loadFolder(
  store: ImageStore,
  folder: string,
  options: { readonly name?: string; readonly now: Date },
  how: 'copy' | 'move',
): Promise<StoredImage[]> {
  const images = existsSync(join(folder, 'index.json'))
    ? await ociImages(store, folder, how)
    : existsSync(join(folder, 'manifest.json'))
      ? await dockerImages(store, folder, how)
      : null;
  if (!images) throw badArchive('it has neither index.json (OCI layout) nor manifest.json (docker save)');
  const names = images.flatMap((image) => image.names);
  if (options.name && images.length > 1) {
    throw badArchive(
      `it contains ${images.length} images (${names.join(', ')}); --as works with one image only`,
    );
  }
  const stored: StoredImage[] = [];
  for (const { names: own, manifest, digest } of images) {
    const given = options.name ? [options.name] : own;
    if (given.length === 0)
      throw badImage('the archive does not name its image', 'give a name: --as NAME:TAG');
    for (const name of given) {
      stored.push(await store.add(name, manifest, { digest, source: 'archive', now: options.now }));
    }
  }
  return stored;
}

interface FoundImage {
  readonly names: readonly string[];
  readonly manifest: ImageManifest;
  readonly digest: string;
}

async function ociImages(store: ImageStore, folder: string, how: 'copy' | 'move'): Promise<FoundImage[]> {
  const index = JSON.parse(readBlob(join(folder, 'index.json'))) as { manifests?: Descriptor[] };
  const blobFile = (digest: string) => inside(folder, `blobs/${digest.replace(':', '/')}`);
  const images = new Map<string, { names: string[]; manifest: ImageManifest; digest: string }>();
  for (const entry of index.manifests ?? []) {
    const read = async (digest: string) => readBlob(blobFile(digest));
    const found = await findManifest(await read(entry.digest), 'the archive', read);
    const descriptor = found.entry ?? entry;
    const { manifest } = found;
    // containerd writes the full name; other tools may write only a tag.
    const name =
      entry.annotations?.['io.containerd.image.name'] ??
      entry.annotations?.['org.opencontainers.image.ref.name'];
    const known = images.get(descriptor.digest) ?? { names: [], manifest, digest: descriptor.digest };
    if (name && /[/:]/.test(name)) known.names.push(name);
    images.set(descriptor.digest, known);
  }
  for (const { manifest, digest } of images.values()) {
    for (const blob of [manifest.config, ...manifest.layers, { digest, size: -1 }]) {
      if (!store.hasBlob(blob)) await storeBlob(store, blobFile(blob.digest), how, blob.digest);
    }
  }
  return [...images.values()];
}

/** `docker save`: manifest.json is [{Config, RepoTags, Layers}], all of them paths in the archive. */
async function dockerImages(store: ImageStore, folder: string, how: 'copy' | 'move'): Promise<FoundImage[]> {
  const list = JSON.parse(readBlob(join(folder, 'manifest.json'))) as {
    Config: string;
    RepoTags?: string[] | null;
    Layers?: string[];
  }[];
  const images: FoundImage[] = [];
  const taken = new Map<string, Descriptor>();
  const take = async (path: string, mediaType: string): Promise<Descriptor> => {
    const file = realpathSync(inside(folder, path));
    // Several names in the archive may link to one file.
    const known = taken.get(file);
    if (known) return known;
    const { size } = statSync(file);
    const descriptor = { mediaType, digest: await storeBlob(store, file, how), size };
    taken.set(file, descriptor);
    return descriptor;
  };
  for (const { Config, RepoTags, Layers = [] } of list) {
    const layers: Descriptor[] = [];
    for (const path of Layers) layers.push(await take(path, 'application/vnd.oci.image.layer.v1.tar'));
    const manifest = {
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: await take(Config, 'application/vnd.oci.image.config.v1+json'),
      layers,
    };
    const fresh = store.temporary('manifest');
    writeFileSync(fresh, JSON.stringify(manifest), { mode: 0o600 });
    images.push({ names: RepoTags ?? [], manifest, digest: await storeBlob(store, fresh, 'move') });
  }
  return images;
}

/** Stores a file under its digest, which must be `expected` if given. */
async function storeBlob(
  store: ImageStore,
  file: string,
  how: 'copy' | 'move',
  expected?: string,
): Promise<string> {
  if (!existsSync(file)) throw badImage(`the archive lacks the blob ${expected ?? file}`);
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  const digest = `sha256:${hash.digest('hex')}`;
  if (expected && digest !== expected)
    throw badImage(`the archive's blob ${expected} has the contents of ${digest}`);
  if (how === 'move') renameSync(file, store.blobPath(digest));
  else {
    const fresh = store.temporary('copy');
    await pipeline(createReadStream(file), createWriteStream(fresh, { mode: 0o600 }));
    renameSync(fresh, store.blobPath(digest));
  }
  return digest;
}

function readBlob(file: string): string {
  const name = file.split('/').slice(-3).join('/');
  if (!existsSync(file)) throw badImage(`the archive lacks ${name}`);
  const { bytes, isCut } = readAtMost(realpathSync(file), MAX_MANIFEST_BYTES);
  if (isCut) throw badArchive(`${name} has more than ${MAX_MANIFEST_BYTES} bytes`);
  return bytes.toString('utf8');
}

function inside(folder: string, path: string): string {
  const clean = normalize(path);
  if (clean.startsWith('..') || clean.startsWith('/'))
    throw badArchive(`${JSON.stringify(path)} is outside the archive`);
  return join(folder, clean);
}

function badArchive(why: string): FairleadError {
  return new FairleadError(`the archive cannot be loaded: ${why}`, {
    op: 'load image',
    code: 'bad-archive',
    hint: 'create it with: docker save -o FILE IMAGE, or skopeo copy docker://IMAGE oci-archive:FILE',
  });
}
