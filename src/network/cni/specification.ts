// The Container Network Interface, version 1.1 (containernetworking/cni, SPEC.md).

/** Supported versions of the specification, oldest first. */
export const CNI_VERSIONS = ['0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;
export type CniVersion = (typeof CNI_VERSIONS)[number];
export const NEWEST_CNI_VERSION: CniVersion = '1.1.0';

/** Well-known error codes; 100 and above are specific to a plugin. */
export const CNI_CODE = {
  incompatibleVersion: 1,
  unsupportedField: 2,
  unknownContainer: 3,
  badEnvironment: 4,
  io: 5,
  undecodable: 6,
  badConfiguration: 7,
  tryAgain: 11,
  unavailable: 50,
  /** The container's network has changed since it was set up (CHECK). */
  broken: 100,
  /** Another pod has a requested host port. */
  portTaken: 101,
  /** The node's pod network has no free address. */
  exhausted: 102,
} as const;

/** The standard output of a failed plugin. */
export interface CniFailure {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
}

export const CNI_COMMANDS = ['ADD', 'DEL', 'CHECK', 'GC', 'STATUS', 'VERSION'] as const;
export type CniCommand = (typeof CNI_COMMANDS)[number];

/** A call with its variables and its configuration checked. */
export interface CniRequest {
  readonly command: CniCommand;
  readonly containerId: string;
  /** The path of the container's network namespace; empty if the runtime has none (DEL). */
  readonly netns: string;
  readonly ifname: string;
  /** CNI_ARGS: "K=V;K=V". */
  readonly args: string;
  readonly config: CniConfig;
}

/** The fields of a network configuration (of one plugin, as the runtime passes it) that are read. */
export interface CniConfig {
  readonly cniVersion: CniVersion;
  readonly name: string;
  readonly type: string;
  readonly dns?: object;
  readonly prevResult?: unknown;
  readonly runtimeConfig?: { readonly portMappings?: readonly CniPortMapping[] };
  readonly validAttachments: readonly { readonly containerID: string; readonly ifname: string }[];
}

/**
 * A mapping as libcni writes it. containerd's go-cni writes its fields without JSON names, hence with
 * capitals: both are accepted, as in Go's decoder, which ignores case.
 */
export type CniPortMapping = Readonly<Record<string, unknown>>;

/** Thrown if a call fails; becomes the plugin's answer. */
export class CniError extends Error {
  readonly code: number;
  readonly details: string | undefined;

  constructor(code: number, message: string, details?: string) {
    super(message);
    this.code = code;
    this.details = details;
  }
}

/** Reads a network configuration. Throws CniError by the specification's codes. */
export function readConfig(document: unknown): CniConfig {
  if (typeof document !== 'object' || document === null || Array.isArray(document)) {
    throw new CniError(CNI_CODE.undecodable, 'the network configuration is not a JSON object');
  }
  const fields = document as Record<string, unknown>;
  const cniVersion = String(fields['cniVersion'] ?? '0.1.0');
  const known = CNI_VERSIONS.find((version) => version === cniVersion);
  if (!known) {
    throw new CniError(
      CNI_CODE.incompatibleVersion,
      `cniVersion ${JSON.stringify(cniVersion)} is not supported; this plugin supports ${CNI_VERSIONS.join(', ')}`,
      'set cniVersion of the network configuration to one of these',
    );
  }
  const name = fields['name'];
  if (typeof name !== 'string' || !/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(name)) {
    throw new CniError(
      CNI_CODE.badConfiguration,
      `name: ${JSON.stringify(name)} is not a valid network name`,
    );
  }
  const ipam = fields['ipam'];
  if (typeof ipam === 'object' && ipam !== null && Object.keys(ipam).length > 0) {
    throw new CniError(
      CNI_CODE.unsupportedField,
      `ipam: ${JSON.stringify(ipam)} is not supported: addresses come from the node's pod networks`,
    );
  }
  return {
    ...(fields as unknown as CniConfig),
    cniVersion: known,
    name,
    validAttachments: (fields['cni.dev/valid-attachments'] ??
      fields['cni.dev/attachments'] ??
      []) as CniConfig['validAttachments'],
  };
}

/** Returns true if version `a` is `b` or newer. */
export const atLeast = (a: CniVersion, b: CniVersion): boolean =>
  CNI_VERSIONS.indexOf(a) >= CNI_VERSIONS.indexOf(b);
