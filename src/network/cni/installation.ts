import {
  copyFileSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { SOCKET_VARIABLE } from './specification.ts';

/** The folders in which a container runtime looks for plugins and network configurations. */
export interface CniInstallation {
  /** "/opt/cni/bin" */
  readonly binDir: string;
  /** "/etc/cni/net.d" */
  readonly confDir: string;
  /**
   * The folder of the plugin's program, which the command in `binDir` runs. Its path on the node is the
   * same.
   */
  readonly libDir: string;
  /** The agent's CNI socket. */
  readonly socket: string;
}

/** The plugin's type: its command's name. */
export const CNI_TYPE = 'fairlead';
/** The loopback plugin, which containerd calls first, and which a newly installed node does not have. */
export const LOOPBACK_TYPE = 'loopback';
/** Runtimes take the first configuration by name. */
export const CONFLIST = '10-fairlead.conflist';

/** Returns the network configuration for runtimes. Newer ones use the newest of `cniVersions`. */
export function conflist(socket: string): object {
  return {
    cniVersion: '1.0.0',
    cniVersions: ['0.4.0', '1.0.0', '1.1.0'],
    name: 'fairlead',
    plugins: [{ type: CNI_TYPE, socket, capabilities: { portMappings: true } }],
  };
}

/**
 * Installs the plugin on the node: a command, its program (`bundle`, run by the Node.js `node`), and last the network
 * configuration, which lets the runtime start pods. Files are replaced atomically; equal ones are kept.
 */
export function installCni(
  { binDir, confDir, libDir, socket }: CniInstallation,
  program: { readonly node: string; readonly bundle: string },
): void {
  try {
    for (const folder of [binDir, confDir, libDir]) mkdirSync(folder, { recursive: true, mode: 0o755 });
    const node = join(libDir, 'node');
    const bundle = join(libDir, 'cni.mjs');
    place(program.node, node);
    place(program.bundle, bundle);
    const quote = (path: string) => `'${path.replaceAll("'", "'\\''")}'`;
    const run = `exec ${quote(node)} ${quote(bundle)} "$@"\n`;
    replace(join(binDir, CNI_TYPE), `#!/bin/sh\n${run}`, 0o755);
    // The loopback plugin's configuration comes from the runtime and has no field "socket".
    if (isOursOrMissing(join(binDir, LOOPBACK_TYPE)))
      replace(
        join(binDir, LOOPBACK_TYPE),
        `#!/bin/sh\n${LOOPBACK_MARK}\nexport ${SOCKET_VARIABLE}=${quote(socket)}\n${run}`,
        0o755,
      );
    replace(join(confDir, CONFLIST), `${JSON.stringify(conflist(socket), null, 2)}\n`, 0o644);
  } catch (error) {
    throw new FairleadError(`cannot install the CNI plugin: ${messageOf(error)}`, {
      op: 'install CNI plugin',
      code: hasCode(error, 'EROFS', 'EACCES', 'EPERM') ? 'EACCES' : 'EIO',
      hint: 'network.cni.binDir and confDir must be folders of the node that are writable for the agent',
      cause: error,
    });
  }
}

/** Removes the plugin from the node, the configuration first. Other programs' files in the folders stay. */
export function uninstallCni({ binDir, confDir, libDir }: Omit<CniInstallation, 'socket'>): void {
  rmSync(join(confDir, CONFLIST), { force: true });
  rmSync(join(binDir, CNI_TYPE), { force: true });
  const loopback = join(binDir, LOOPBACK_TYPE);
  if (isOursOrMissing(loopback)) rmSync(loopback, { force: true });
  for (const file of ['node', 'cni.mjs']) rmSync(join(libDir, file), { force: true });
  try {
    rmdirSync(libDir);
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY')) throw error;
  }
}

const LOOPBACK_MARK = '# Written by fairlead, where no other loopback plugin was.';

/** The loopback plugin of the distribution or of containerd stays. */
function isOursOrMissing(file: string): boolean {
  try {
    return readFileSync(file, 'latin1').slice(0, 200).includes(LOOPBACK_MARK);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return true;
    throw error;
  }
}

/** Installs a file of the program, as a hard link if possible (Node.js is large), unless it exists. */
function place(source: string, target: string): void {
  const [from, to] = [statSync(source), statSync(target, { throwIfNoEntry: false })];
  if (to && to.size === from.size && (to.ino === from.ino || to.mtimeMs >= from.mtimeMs)) return;
  const fresh = `${target}.${process.pid}`;
  rmSync(fresh, { force: true });
  try {
    linkSync(source, fresh);
  } catch (error) {
    if (!hasCode(error, 'EXDEV', 'EPERM', 'EMLINK', 'EACCES')) throw error;
    copyFileSync(source, fresh);
  }
  renameSync(fresh, target);
}

function replace(file: string, text: string, mode: number): void {
  try {
    if (readFileSync(file, 'utf8') === text) return;
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
  // Returns a name that no runtime reads as a configuration (.conf, .conflist, .json).
  const fresh = join(dirname(file), `.${CNI_TYPE}.${process.pid}`);
  writeFileSync(fresh, text, { mode });
  renameSync(fresh, file);
}
