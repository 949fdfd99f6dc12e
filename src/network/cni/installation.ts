import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { replaceFile } from '../../kernel/replace-file.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { isPluginProgram, pluginProgram } from './plugin-program.ts';

/** The folders in which a container runtime looks for plugins and network configurations. */
export interface CniInstallation {
  /** "/opt/cni/bin" */
  readonly binDir: string;
  /** "/etc/cni/net.d" */
  readonly confDir: string;
  /** The agent's CNI socket. */
  readonly socket: string;
  /** Configurations of other plugins, which are called after Fairlead's, such as `bandwidth`. */
  readonly chained: readonly ChainedPlugin[];
}

/** The configuration of a plugin in a list, with its `type`; it is passed on as it is. */
export type ChainedPlugin = Readonly<Record<string, unknown>>;

/** The plugin's type: its program's name. */
export const CNI_TYPE = 'fairlead';
/** The loopback plugin, which containerd calls first, and which a newly installed node does not have. */
export const LOOPBACK_TYPE = 'loopback';
/** Runtimes take the first configuration by name. */
export const CONFLIST = '10-fairlead.conflist';

/** Returns the network configuration for runtimes. Newer ones use the newest of `cniVersions`. */
export function conflist(chained: readonly ChainedPlugin[]): object {
  return {
    cniVersion: '1.0.0',
    cniVersions: ['0.4.0', '1.0.0', '1.1.0'],
    name: 'fairlead',
    plugins: [{ type: CNI_TYPE, capabilities: { portMappings: true } }, ...chained],
  };
}

/**
 * Installs the plugin on the node: its program, and last the network configuration, which lets the runtime start pods.
 * Files are replaced atomically; equal ones are kept.
 */
export function installCni({ binDir, confDir, socket, chained }: CniInstallation): void {
  try {
    for (const folder of [binDir, confDir]) mkdirSync(folder, { recursive: true, mode: 0o755 });
    const program = pluginProgram(socket);
    replaceFile(join(binDir, CNI_TYPE), program, 0o755);
    if (isOursOrMissing(join(binDir, LOOPBACK_TYPE)))
      replaceFile(join(binDir, LOOPBACK_TYPE), program, 0o755);
    const list = `${JSON.stringify(conflist(chained), null, 2)}\n`;
    replaceFile(join(confDir, CONFLIST), list, 0o644);
  } catch (error) {
    if (error instanceof FairleadError) throw error;
    throw new FairleadError(`cannot install the CNI plugin: ${messageOf(error)}`, {
      op: 'install CNI plugin',
      code: hasCode(error, 'EROFS', 'EACCES', 'EPERM') ? 'EACCES' : 'EIO',
      hint: 'network.cni.binDir and confDir must be folders of the node that are writable for the agent',
      cause: error,
    });
  }
}

/** Removes the plugin from the node, the configuration first. Other programs' files in the folders stay. */
export function uninstallCni({ binDir, confDir }: Pick<CniInstallation, 'binDir' | 'confDir'>): void {
  rmSync(join(confDir, CONFLIST), { force: true });
  rmSync(join(binDir, CNI_TYPE), { force: true });
  const loopback = join(binDir, LOOPBACK_TYPE);
  if (isOursOrMissing(loopback)) rmSync(loopback, { force: true });
}

/** The loopback plugin of the distribution or of containerd stays. */
function isOursOrMissing(file: string): boolean {
  try {
    return isPluginProgram(readFileSync(file));
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return true;
    throw error;
  }
}
