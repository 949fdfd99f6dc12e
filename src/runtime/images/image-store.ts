import { createHash, randomUUID } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify } from '../../kernel/process-identity.ts';
import { timestamp } from '../../kube/timestamp.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { Image } from '../rootfs.ts';
import { applyLayer } from './layer.ts';
import { badImage, type Descriptor, type ImageConfig, type ImageManifest, readConfig } from './manifest.ts';
import { formatReference, parseReference } from './reference.ts';

/** A stored image, as shown by `image ls`. */
export interface StoredImage {
  /** "docker.io/library/nginx:1.27" */
  readonly name: string;
  /** Digest of the image's manifest. */
  readonly digest: string;
  /** The digest of the name in the registry: of a list of manifests, or the same. */
  readonly listDigest: string;
  readonly config: string;
  readonly layers: readonly string[];
  /** The unpacked file system: a folder's name below `roots`. */
  readonly root: string;
  /** Bytes of the blobs. */
  readonly size: number;
  /** Images from archives are used independent of the registry's image of the same name. */
  readonly source: 'archive' | 'registry';
  /** RFC 3339 */
  readonly storedAt: string;
}

/**
 * A folder of images, shared by processes: blobs by digest, unpacked root file systems, and a file for each name. All
 * contents are complete: everything is written under a temporary name and renamed.
 */
export interface ImageStore {
  readonly folder: string;
  /** Returns an image by any form of its name. */
  find(reference: string): StoredImage | null;
  list(): StoredImage[];
  /** Removes a name, and content without another name. Returns null for an unknown name; throws "image-in-use". */
  remove(reference: string): StoredImage | null;
  /** Returns the path of a blob, present or not. */
  blobPath(digest: string): string;
  hasBlob(blob: Pick<Descriptor, 'digest' | 'size'>): boolean;
  /** Returns a temporary name of this process; leftovers of dead processes are removed. */
  temporary(what: string): string;
  /** Unpacks an image whose blobs are present and names it. Throws "bad-image". */
  add(
    reference: string,
    manifest: ImageManifest,
    from: {
      readonly digest: string;
      readonly listDigest?: string;
      readonly source: StoredImage['source'];
      readonly now: Date;
    },
  ): Promise<StoredImage>;
  /** Returns an image as used by containers. */
  open(image: StoredImage): Image;
}

export function openImageStore(folder: string): ImageStore {
  const path = (...parts: string[]) => join(folder, ...parts);
  for (const part of ['blobs/sha256', 'roots', 'names', 'work']) {
    mkdirSync(path(part), { recursive: true, mode: 0o700 });
  }
  sweep(path('work'));
  const nameFile = (name: string) => path('names', `${encodeURIComponent(name)}.json`);
  const read = (file: string): StoredImage | null => {
    const text = readOptionalFile(file);
    return text === null ? null : (JSON.parse(text) as StoredImage);
  };
  const store: ImageStore = {
    folder,
    find: (reference) => read(nameFile(formatReference(parseReference(reference)))),
    list: () =>
      readdirSync(path('names'))
        .filter((file) => file.endsWith('.json'))
        .map((file) => read(path('names', file)))
        .filter((image) => image !== null)
        .sort((a, b) => (a.name < b.name ? -1 : 1)),
    remove(reference) {
      const image = store.find(reference);
      if (!image) return null;
      const others = store.list().filter(({ name }) => name !== image.name);
      const lastOfRoot = others.every(({ root }) => root !== image.root);
      if (lastOfRoot && isMounted(path('roots', image.root))) {
        throw new FairleadError(`image ${image.name} is in use by a container`, {
          op: 'remove image',
          code: 'image-in-use',
          hint: 'delete the pods that use it first',
          object: image.name,
        });
      }
      rmSync(nameFile(image.name), { force: true });
      const needed = new Set(others.flatMap((other) => [other.digest, other.config, ...other.layers]));
      for (const digest of [image.digest, image.config, ...image.layers]) {
        if (!needed.has(digest)) rmSync(store.blobPath(digest), { force: true });
      }
      if (lastOfRoot) rmSync(path('roots', image.root), { recursive: true, force: true });
      return image;
    },
    blobPath: (digest) => path('blobs', ...digest.split(':')),
    hasBlob({ digest, size }) {
      return statSync(store.blobPath(digest), { throwIfNoEntry: false })?.size === size;
    },
    temporary(what) {
      const startTime = identify(process.pid)?.startTime ?? '0';
      return path('work', `${process.pid}.${startTime}.${what.replace(/[^a-z0-9]+/gi, '-')}.${randomUUID()}`);
    },
    async add(reference, manifest, { digest, listDigest = digest, source, now }) {
      const name = formatReference(parseReference(reference));
      const config = readConfig(
        readFileSync(store.blobPath(manifest.config.digest), 'utf8'),
        `the configuration of ${name}`,
      );
      const root = await unpack(store, name, manifest, config);
      const blobs = [manifest.config, ...manifest.layers];
      const image: StoredImage = {
        name,
        digest,
        listDigest,
        config: manifest.config.digest,
        layers: manifest.layers.map((layer) => layer.digest),
        root,
        size: blobs.reduce((sum, blob) => sum + blob.size, 0),
        source,
        storedAt: timestamp(now.getTime()),
      };
      const fresh = store.temporary('name');
      writeFileSync(fresh, JSON.stringify(image, null, 2), { mode: 0o600 });
      renameSync(fresh, nameFile(name));
      return image;
    },
    open(image) {
      const { config = {} } = readConfig(readFileSync(store.blobPath(image.config), 'utf8'), image.name);
      const env = (config.Env ?? []).map((variable): [string, string] => {
        const at = variable.indexOf('=');
        return at < 0 ? [variable, ''] : [variable.slice(0, at), variable.slice(at + 1)];
      });
      return {
        name: image.name,
        id: `${image.name.replace(/(:[^:/@]*)?(@.*)?$/, '')}@${image.digest}`,
        layers: [path('roots', image.root)],
        env: {
          PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
          ...Object.fromEntries(env),
        },
        entrypoint: config.Entrypoint ?? [],
        command: config.Cmd ?? [],
        workingDir: config.WorkingDir || '/',
        user: config.User || '0',
        stopSignal: config.StopSignal || 'SIGTERM',
        mounts: [],
      };
    },
  };
  return store;
}

/** Unpacks the layers on top of each other, in a folder named by their contents. */
async function unpack(
  store: ImageStore,
  name: string,
  manifest: ImageManifest,
  config: ImageConfig,
): Promise<string> {
  const contents = config.rootfs?.diff_ids ?? [];
  if (contents.length !== manifest.layers.length) {
    throw badImage(
      `image ${name} has ${manifest.layers.length} layers; its configuration names ${contents.length}`,
    );
  }
  const root = createHash('sha256').update(contents.join(' ')).digest('hex');
  const target = join(store.folder, 'roots', root);
  if (statSync(target, { throwIfNoEntry: false })) return root;
  const fresh = store.temporary('root');
  mkdirSync(fresh, { mode: 0o755 });
  try {
    for (const [i, layer] of manifest.layers.entries()) {
      const hash = createHash('sha256');
      await applyLayer(fresh, hashed(decompressed(store.blobPath(layer.digest)), hash));
      const digest = `sha256:${hash.digest('hex')}`;
      if (digest !== contents[i]) {
        throw badImage(
          `layer ${i} of image ${name} has the contents of ${digest}; its configuration names ${contents[i]}`,
        );
      }
    }
    renameSync(fresh, target);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    // Another process was faster.
    if (!hasCode(error, 'ENOTEMPTY', 'EEXIST')) throw error;
  }
  return root;
}

/** Returns a file's contents, decompressed according to its first bytes: gzip, zstd, or uncompressed. */
export function decompressed(file: string): AsyncIterable<Uint8Array> {
  const head = Buffer.alloc(4);
  const fd = openSync(file, 'r');
  readSync(fd, head, 0, 4, 0);
  closeSync(fd);
  const source = createReadStream(file, { highWaterMark: 256 * 1024 });
  const unpacker =
    head.readUInt16BE(0) === 0x1f8b
      ? createGunzip()
      : head.readUInt32LE(0) === 0xfd2fb528
        ? createZstdDecompress()
        : null;
  if (!unpacker) return source;
  // An error of either reaches the reader.
  return pipeline(source, unpacker, () => {});
}

async function* hashed(
  source: AsyncIterable<Uint8Array>,
  hash: { update(data: Uint8Array): unknown },
): AsyncGenerator<Uint8Array> {
  for await (const chunk of source) {
    hash.update(chunk);
    yield chunk;
  }
}

/** Removes partial work of processes that no longer run. */
function sweep(folder: string): void {
  for (const entry of readdirSync(folder)) {
    const [pid = '', startTime] = entry.split('.');
    if (identify(Number(pid))?.startTime === startTime) continue;
    // Downloads are resumed by the next process that needs the blob (see blob-download.ts).
    if (!entry.includes('.blob-')) rmSync(join(folder, entry), { recursive: true, force: true });
  }
}

/** Reports whether the root file system of a container uses this one. */
function isMounted(root: string): boolean {
  return readFileSync('/proc/self/mountinfo', 'utf8').includes(
    `lowerdir=${root.replace(/[\\:,]/g, '\\$&')},`,
  );
}
