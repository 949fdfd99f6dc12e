import { createHash } from 'node:crypto';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { type Descriptor, machineArchitecture } from '../manifest.ts';

/** A file of a layer, as stored in a tar archive. */
export interface LayerEntry {
  readonly path: string;
  readonly type?: 'file' | 'link' | 'symlink' | 'directory' | 'fifo' | 'character';
  readonly contents?: string | Uint8Array;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly linkPath?: string;
  /** Default: /dev/null. */
  readonly device?: { readonly major: number; readonly minor: number };
  /** A preceding pax header. */
  readonly pax?: Readonly<Record<string, string>>;
}

const FLAGS = { file: '0', link: '1', symlink: '2', character: '3', directory: '5', fifo: '6' } as const;

/** Builds a tar archive (POSIX ustar) literally from its entries. */
export function tarOf(entries: readonly LayerEntry[]): Buffer {
  const blocks: Buffer[] = [];
  for (const entry of entries) {
    if (entry.pax) {
      const data = Buffer.from(Object.entries(entry.pax).map(paxRecord).join(''));
      blocks.push(header({ path: 'pax' }, 'x', data.length), padded(data));
    }
    const data = Buffer.from(entry.contents ?? '');
    const type = entry.type ?? 'file';
    blocks.push(header(entry, FLAGS[type], type === 'file' ? data.length : 0), padded(data));
  }
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

function paxRecord([key, value]: [string, string]): string {
  for (let length = key.length + 3; ; length++) {
    const record = `${length} ${key}=${value}\n`;
    if (Buffer.byteLength(record) === length) return record;
  }
}

const padded = (data: Buffer) => Buffer.concat([data, Buffer.alloc((512 - (data.length % 512)) % 512)]);

function header(entry: LayerEntry, flag: string, size: number): Buffer {
  const block = Buffer.alloc(512);
  const octal = (value: number, at: number, length: number) =>
    block.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at, 'latin1');
  block.write(entry.path, 0, 100, 'utf8');
  octal(entry.mode ?? (entry.type === 'directory' ? 0o755 : 0o644), 100, 8);
  octal(entry.uid ?? 0, 108, 8);
  octal(entry.gid ?? 0, 116, 8);
  octal(size, 124, 12);
  octal(1_700_000_000, 136, 12);
  block.write('        ', 148, 'latin1');
  block.write(flag, 156, 'latin1');
  block.write(entry.linkPath ?? '', 157, 100, 'utf8');
  block.write('ustar\x0000', 257, 'latin1');
  octal(entry.device?.major ?? 1, 329, 8);
  octal(entry.device?.minor ?? 3, 337, 8);
  block.write(
    `${block
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
    'latin1',
  );
  return block;
}

export interface TestImage {
  readonly manifest: Descriptor;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
  readonly blobs: ReadonlyMap<string, Buffer>;
}

const digestOf = (data: Uint8Array) => `sha256:${createHash('sha256').update(data).digest('hex')}`;
const PACKERS = { gzip: gzipSync, zstd: zstdCompressSync, none: (data: Buffer) => data } as const;

/** Builds an image whose layers are compressed by the packers in turn. */
export function buildImage(
  layers: readonly (readonly LayerEntry[])[],
  config: object = {},
  packers: readonly (keyof typeof PACKERS)[] = ['gzip'],
): TestImage {
  const blobs = new Map<string, Buffer>();
  const put = (mediaType: string, data: Buffer): Descriptor => {
    const descriptor = { mediaType, digest: digestOf(data), size: data.length };
    blobs.set(descriptor.digest, data);
    return descriptor;
  };
  const tars = layers.map(tarOf);
  const packed = tars.map((tar, i) =>
    put(
      'application/vnd.oci.image.layer.v1.tar',
      Buffer.from(PACKERS[packers[i % packers.length] ?? 'none'](tar)),
    ),
  );
  const json = (mediaType: string, value: object) => put(mediaType, Buffer.from(JSON.stringify(value)));
  const configBlob = json('application/vnd.oci.image.config.v1+json', {
    os: 'linux',
    architecture: machineArchitecture(),
    config,
    rootfs: { type: 'layers', diff_ids: tars.map(digestOf) },
  });
  const mediaType = 'application/vnd.oci.image.manifest.v1+json';
  const manifest = json(mediaType, { schemaVersion: 2, mediaType, config: configBlob, layers: packed });
  return { manifest, config: configBlob, layers: packed, blobs };
}

/** Builds a list of images for platforms ("linux/arm64"). */
export function buildIndex(images: readonly { readonly platform: string; readonly image: TestImage }[]): {
  readonly index: Descriptor;
  readonly blobs: ReadonlyMap<string, Buffer>;
} {
  const mediaType = 'application/vnd.oci.image.index.v1+json';
  const manifests = images.map(({ platform, image }) => {
    const [os, architecture] = platform.split('/');
    return { ...image.manifest, platform: { os, architecture } };
  });
  const data = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests }));
  const digest = digestOf(data);
  const blobs = new Map(images.flatMap(({ image }) => [...image.blobs]));
  blobs.set(digest, data);
  return { index: { mediaType, digest, size: data.length }, blobs };
}

/** Builds an OCI image layout as a tar archive, with one entry in its index for each name. */
export function ociArchive(
  entries: readonly { readonly descriptor: Descriptor; readonly name?: string }[],
  blobs: ReadonlyMap<string, Buffer>,
): Buffer {
  const manifests = entries.map(({ descriptor, name }) => ({
    ...descriptor,
    ...(name ? { annotations: { 'org.opencontainers.image.ref.name': name } } : {}),
  }));
  return tarOf([
    { path: 'oci-layout', contents: '{"imageLayoutVersion":"1.0.0"}' },
    { path: 'index.json', contents: JSON.stringify({ schemaVersion: 2, manifests }) },
    ...[...blobs].map(([digest, contents]) => ({ path: `blobs/sha256/${digest.slice(7)}`, contents })),
  ]);
}

/** Builds the output of `docker save` before OCI layouts. */
export function dockerArchive(image: TestImage, names: readonly string[]): Buffer {
  const at = (descriptor: Descriptor) => image.blobs.get(descriptor.digest) ?? Buffer.alloc(0);
  const config = `${image.config.digest.slice(7)}.json`;
  const layers = image.layers.map(({ digest }) => ({ path: `${digest.slice(7)}/layer.tar`, digest }));
  return tarOf([
    { path: config, contents: at(image.config) },
    ...layers.map(({ path }, i) => ({ path, contents: at(image.layers[i] as Descriptor) })),
    {
      path: 'manifest.json',
      contents: JSON.stringify([{ Config: config, RepoTags: names, Layers: layers.map(({ path }) => path) }]),
    },
  ]);
}
