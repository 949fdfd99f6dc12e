import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readAtMost } from '../../kernel/bounded-file.ts';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify } from '../../kernel/process-identity.ts';
import { timestamp } from '../../kube/timestamp.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { createSemaphore } from '../../lib/semaphore.ts';
import { inFileThread } from '../files/file-thread.ts';
import { removeTree } from '../files/file-tree.ts';
import type { Image } from '../rootfs.ts';
import { LAYER_LIMITS, type LayerLimits } from './layer-limits.ts';
import {
  badImage,
  type Descriptor,
  type ImageConfig,
  type ImageManifest,
  MAX_CONFIG_BYTES,
  readConfig,
} from './manifest.ts';
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
  /** Throws "image-too-large" if the blobs of an image alone exceed what may be unpacked. */
  checkSize(manifest: ImageManifest, name: string): void;
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

export function openImageStore(folder: string, options: Partial<LayerLimits> = {}): ImageStore {
  const limits = { ...LAYER_LIMITS, ...options };
  // Two at once would delay each other, and take the memory of two.
  const unpacks = createSemaphore(1);
  const path = (...parts: string[]) => join(folder, ...parts);
  for (const part of ['blobs/sha256', 'roots', 'names', 'work']) {
    mkdirSync(path(part), { recursive: true, mode: 0o700 });
  }
  // The next process tries again.
  sweep(path('work')).catch((error: unknown) => process.emitWarning(messageOf(error)));
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
    checkSize({ layers }, name) {
      if (layers.reduce((sum, { size }) => sum + size, 0) <= limits.bytes) return;
      throw new FairleadError(`the layers of image ${name} have more than ${limits.bytes} bytes`, {
        op: 'pull image',
        code: 'image-too-large',
      });
    },
    async add(reference, manifest, { digest, listDigest = digest, source, now }) {
      const name = formatReference(parseReference(reference));
      const config = readConfig(
        readAtMost(store.blobPath(manifest.config.digest), MAX_CONFIG_BYTES),
        `the configuration of ${name}`,
      );
      const root = await unpacks.run(() => unpack(store, limits, name, manifest, config));
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
      const config = readConfig(readAtMost(store.blobPath(image.config), MAX_CONFIG_BYTES), image.name);
      const env = config.env.map((variable): [string, string] => {
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
        entrypoint: config.entrypoint,
        command: config.command,
        workingDir: config.workingDir || '/',
        user: config.user || '0',
        stopSignal: config.stopSignal || 'SIGTERM',
        mounts: [],
      };
    },
  };
  return store;
}

/** Unpacks the layers on top of each other, in a folder named by their contents. */
async function unpack(
  store: ImageStore,
  limits: LayerLimits,
  name: string,
  manifest: ImageManifest,
  config: ImageConfig,
): Promise<string> {
  const contents = config.diffIds;
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
    const layers = manifest.layers.map(({ digest }, i) => ({
      file: store.blobPath(digest),
      diffId: contents[i] ?? '',
    }));
    await inFileThread({ kind: 'unpack', root: fresh, image: name, layers, limits }, limits.seconds);
    renameSync(fresh, target);
  } catch (error) {
    await removeTree(fresh);
    // Another process was faster.
    if (!hasCode(error, 'ENOTEMPTY', 'EEXIST')) throw error;
  }
  return root;
}

/** Removes partial work of processes that no longer run: a file system of any size. */
async function sweep(folder: string): Promise<void> {
  const leftovers: string[] = [];
  for (const entry of readdirSync(folder)) {
    const [pid = '', startTime] = entry.split('.');
    if (identify(Number(pid))?.startTime === startTime) continue;
    // Downloads are resumed by the next process that needs the blob (see blob-download.ts).
    if (!entry.includes('.blob-')) leftovers.push(join(folder, entry));
  }
  for (const leftover of leftovers) await removeTree(leftover);
}

/** Reports whether the root file system of a container uses this one. */
function isMounted(root: string): boolean {
  return readFileSync('/proc/self/mountinfo', 'utf8').includes(
    `lowerdir=${root.replace(/[\\:,]/g, '\\$&')},`,
  );
}
