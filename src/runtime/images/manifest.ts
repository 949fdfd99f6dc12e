import type { FileStart } from '../../kernel/bounded-file.ts';
import { FairleadError } from '../../lib/errors.ts';
import { MAX_LAYERS } from './layer-limits.ts';

/** A descriptor of a blob (OCI image-spec, descriptor.md). */
export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly platform?: { readonly os?: string; readonly architecture?: string; readonly variant?: string };
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface ImageManifest {
  readonly mediaType?: string;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
}

/** The used fields of an image's configuration; empty if it has none. */
export interface ImageConfig {
  /** Digests of the unpacked layers. */
  readonly diffIds: readonly string[];
  /** "NAME=VALUE" */
  readonly env: readonly string[];
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
  readonly workingDir: string;
  readonly user: string;
  readonly stopSignal: string;
}

/** Bytes of a manifest or a list (distribution-spec: registries should accept 4 MiB). */
export const MAX_MANIFEST_BYTES = 4 << 20;
/** Bytes of a configuration, which is read at each start of a container. */
export const MAX_CONFIG_BYTES = 1 << 20;
/** Platforms that an error names. */
const MAX_NAMED = 20;
/** Lists that name lists. */
const MAX_LISTS = 3;

/** Supported media types of manifests and of lists. */
export const MANIFEST_TYPES = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
];

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386' };

/** Returns the architecture of this machine in image lists. */
export const machineArchitecture = (): string => ARCHITECTURES[process.arch] ?? process.arch;

/**
 * Reads a manifest: either an image's, or of a list the entry that fits this machine. `what` names it in errors.
 * Throws FairleadError "bad-image".
 */
export function readManifest(
  text: string,
  what: string,
  architecture: string,
): { readonly image: ImageManifest } | { readonly entry: Descriptor } {
  const data = parseObject(text, what);
  if (Array.isArray(data['manifests'])) {
    const entries = data['manifests'] as Descriptor[];
    if (!entries.every((one) => typeof one === 'object' && one !== null))
      throw badImage(`${what} has a malformed list of manifests`);
    const fits = entries.find(
      ({ platform, annotations }) =>
        (platform?.os ?? 'linux') === 'linux' &&
        (platform?.architecture ?? architecture) === architecture &&
        annotations?.['vnd.docker.reference.type'] === undefined,
    );
    if (fits) return { entry: checkDescriptor(fits, what) };
    const offered = entries
      .slice(0, MAX_NAMED)
      .map(({ platform }) => `${platform?.os}/${platform?.architecture}`.slice(0, 40))
      .join(', ');
    throw badImage(`${what} is for ${offered}, not for linux/${architecture}`);
  }
  const { config, layers } = data as unknown as ImageManifest;
  if (!config || !Array.isArray(layers)) throw badImage(`${what} has no manifest of a supported type`);
  for (const one of [config, ...layers]) checkDescriptor(one, what);
  if (layers.length > MAX_LAYERS) throw tooLarge(`${what} has more than ${MAX_LAYERS} layers`);
  if (config.size > MAX_CONFIG_BYTES)
    throw tooLarge(`the configuration of ${what} has more than ${MAX_CONFIG_BYTES} bytes`);
  return { image: { config, layers } };
}

/** Reads an image's configuration. Throws FairleadError "bad-image". */
export function readConfig(bytes: FileStart, what: string): ImageConfig {
  if (bytes.isCut) throw tooLarge(`${what} has more than ${MAX_CONFIG_BYTES} bytes`);
  const { rootfs = {}, config } = parseObject(bytes.bytes.toString('utf8'), what) as {
    rootfs?: Record<string, unknown>;
    config?: Record<string, unknown> | null;
  };
  const texts = (value: unknown): readonly string[] => {
    if (value === undefined || value === null) return [];
    if (Array.isArray(value) && value.every((one) => typeof one === 'string' && !one.includes('\0')))
      return value as string[];
    throw badImage(`${what} has a list that is not of texts`);
  };
  const text = (value: unknown): string => {
    if (value === undefined || value === null) return '';
    if (typeof value === 'string' && !value.includes('\0')) return value;
    throw badImage(`${what} has a field that is not a text`);
  };
  const { Env, Entrypoint, Cmd, WorkingDir, User, StopSignal } = config ?? {};
  return {
    diffIds: texts(rootfs?.['diff_ids']),
    env: texts(Env),
    entrypoint: texts(Entrypoint),
    command: texts(Cmd),
    workingDir: text(WorkingDir),
    user: text(User),
    stopSignal: text(StopSignal),
  };
}

function checkDescriptor(one: Descriptor, what: string): Descriptor {
  if (typeof one !== 'object' || one === null) throw badImage(`${what} has a malformed list of blobs`);
  // A digest is used as a file name.
  if (!/^sha256:[a-f0-9]{64}$/.test(one.digest)) throw badImage(`${what} has a blob without a sha256 digest`);
  if (!Number.isSafeInteger(one.size) || one.size < 0) throw badImage(`${what} has a blob without a size`);
  return one;
}

/**
 * Follows lists of manifests, of which `read` returns the text, to the image for this machine, and returns its manifest with
 * the digest under which a list names it; null: the text is the manifest's. Throws FairleadError "bad-image".
 */
export async function findManifest(
  text: string,
  what: string,
  read: (digest: string) => Promise<string>,
): Promise<{ readonly manifest: ImageManifest; readonly text: string; readonly entry: Descriptor | null }> {
  let entry: Descriptor | null = null;
  for (let depth = 0; depth <= MAX_LISTS; depth++) {
    const found = readManifest(text, what, machineArchitecture());
    if ('image' in found) return { manifest: found.image, text, entry };
    ({ entry } = found);
    text = await read(entry.digest);
  }
  throw badImage(`${what} has too many levels of nested lists`);
}

function parseObject(text: string, what: string): Record<string, unknown> {
  try {
    const data: unknown = JSON.parse(text);
    if (typeof data === 'object' && data !== null) return data as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw badImage(`${what} is not JSON`);
}

export function badImage(message: string, hint?: string): FairleadError {
  return new FairleadError(message, { op: 'read image', code: 'bad-image', ...(hint ? { hint } : {}) });
}

const tooLarge = (message: string): FairleadError =>
  new FairleadError(message, { op: 'read image', code: 'image-too-large' });
