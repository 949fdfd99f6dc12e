import { FairleadError } from '../../lib/errors.ts';

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

/** The used fields of an image's configuration. */
export interface ImageConfig {
  readonly rootfs?: { readonly diff_ids?: readonly string[] };
  readonly config?: {
    readonly Env?: readonly string[] | null;
    readonly Entrypoint?: readonly string[] | null;
    readonly Cmd?: readonly string[] | null;
    readonly WorkingDir?: string;
    readonly User?: string;
    readonly StopSignal?: string;
  };
}

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
    const fits = entries.find(
      ({ platform, annotations }) =>
        (platform?.os ?? 'linux') === 'linux' &&
        (platform?.architecture ?? architecture) === architecture &&
        annotations?.['vnd.docker.reference.type'] === undefined,
    );
    if (fits) return { entry: checkDescriptor(fits, what) };
    const offered = entries.map(({ platform }) => `${platform?.os}/${platform?.architecture}`).join(', ');
    throw badImage(`${what} is for ${offered}, not for linux/${architecture}`);
  }
  const { config, layers } = data as unknown as ImageManifest;
  if (!config || !Array.isArray(layers)) throw badImage(`${what} has no manifest of a supported type`);
  for (const one of [config, ...layers]) checkDescriptor(one, what);
  return { image: { config, layers } };
}

export function readConfig(text: string, what: string): ImageConfig {
  return parseObject(text, what) as ImageConfig;
}

function checkDescriptor(one: Descriptor, what: string): Descriptor {
  // A digest is used as a file name.
  if (!/^sha256:[a-f0-9]{64}$/.test(one.digest)) throw badImage(`${what} has a blob without a sha256 digest`);
  if (!Number.isSafeInteger(one.size) || one.size < 0) throw badImage(`${what} has a blob without a size`);
  return one;
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
