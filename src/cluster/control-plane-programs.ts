import { execFileSync } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';

export const ETCD = 'etcd';
export const API_SERVER = 'kube-apiserver';
export const CONTROLLER_MANAGER = 'kube-controller-manager';
export const SCHEDULER = 'kube-scheduler';

/** Kubernetes' own programs, which serve a local cluster instead of the embedded control plane. */
export interface RealControlPlane {
  /** The folder of the programs, an absolute path. */
  readonly folder: string;
  /** The version of kube-apiserver: "1.36.0". */
  readonly version: string;
  /** Whether the folder has kube-controller-manager; otherwise the embedded controllers run. */
  readonly controllerManager: boolean;
  /** Whether the folder has kube-scheduler; otherwise the embedded scheduler runs. */
  readonly scheduler: boolean;
}

/** The oldest served version: its kinds are those that agents read, at the same paths. */
const OLDEST_MINOR = 33;
/** The embedded controllers also follow VolumeAttributesClasses, which this version serves as v1. */
const OLDEST_MINOR_ALONE = 34;
/** A first start reads a large program from disk. */
const VERSION_MS = 30_000;
const DOWNLOAD =
  'setup-envtest (go run sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use -p path) downloads etcd and kube-apiserver; https://dl.k8s.io/VERSION/bin/linux/ARCH/ has kube-apiserver, kube-controller-manager and kube-scheduler';

/** Returns the names of the programs that run, in the order of their start. */
export function programNames({ controllerManager, scheduler }: RealControlPlane): readonly string[] {
  return [
    ETCD,
    API_SERVER,
    ...(controllerManager ? [CONTROLLER_MANAGER] : []),
    ...(scheduler ? [SCHEDULER] : []),
  ];
}

/**
 * Looks for the programs in a folder as envtest has it, and asks for their versions. Throws FairleadError that names what
 * is missing or does not fit, with the fix.
 */
export function findControlPlane(folder: string): RealControlPlane {
  if (folder === '')
    throw refusal(folder, 'the folder is empty', 'set KUBEBUILDER_ASSETS, or type the path of the folder');
  const path = resolve(folder);
  const has = (name: string) => isProgram(path, name);
  const missing = [ETCD, API_SERVER].filter((name) => !has(name));
  if (missing.length > 0) throw refusal(path, `it has no ${missing.join(' and no ')}`, DOWNLOAD);
  etcdVersion(path);
  const server = kubernetesVersion(path, API_SERVER);
  const found = { controllerManager: has(CONTROLLER_MANAGER), scheduler: has(SCHEDULER) };
  if (server.minor < OLDEST_MINOR)
    throw refusal(
      path,
      `kube-apiserver ${server.text} is too old`,
      `use version 1.${OLDEST_MINOR} or newer; ${DOWNLOAD}`,
    );
  const absent = [
    ...(found.controllerManager ? [] : [CONTROLLER_MANAGER]),
    ...(found.scheduler ? [] : [SCHEDULER]),
  ];
  if (absent.length > 0 && server.minor < OLDEST_MINOR_ALONE)
    throw refusal(
      path,
      `it has no ${absent.join(' and no ')}, and the embedded ones need kube-apiserver 1.${OLDEST_MINOR_ALONE} or newer, not ${server.text}`,
      `add ${absent.join(' and ')} ${server.text}, or use a newer kube-apiserver; ${DOWNLOAD}`,
    );
  for (const name of [CONTROLLER_MANAGER, SCHEDULER]) {
    if (absent.includes(name)) continue;
    const { text, minor } = kubernetesVersion(path, name);
    // Upstream's version skew policy.
    if (minor > server.minor || minor < server.minor - 1)
      throw refusal(
        path,
        `${name} ${text} does not fit kube-apiserver ${server.text}`,
        `use ${name} ${server.text}: it may be one minor version older, and not newer`,
      );
  }
  return { folder: path, version: server.text, ...found };
}

function isProgram(folder: string, name: string): boolean {
  const file = join(folder, name);
  try {
    if (!statSync(file).isFile()) return false;
    accessSync(file, constants.X_OK);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return false;
    if (hasCode(error, 'EACCES'))
      throw refusal(folder, `${name} is not executable`, `chmod +x ${file}`, error);
    throw error;
  }
}

interface Version {
  readonly text: string;
  readonly minor: number;
}

function kubernetesVersion(folder: string, name: string): Version {
  const printed = printedVersion(folder, name);
  const [, text, minor] = /Kubernetes v(1\.([0-9]+)\.[0-9]+\S*)/.exec(printed) ?? [];
  if (text !== undefined) return { text, minor: Number(minor) };
  throw refusal(folder, `${name} --version printed ${firstLine(printed)}`, `replace ${name}; ${DOWNLOAD}`);
}

function etcdVersion(folder: string): void {
  const printed = printedVersion(folder, ETCD);
  const [, text = '', major, minor] = /etcd Version: (([0-9]+)\.([0-9]+)\.\S+)/.exec(printed) ?? [];
  if (text === '')
    throw refusal(folder, `${ETCD} --version printed ${firstLine(printed)}`, `replace ${ETCD}; ${DOWNLOAD}`);
  if (Number(major) < 3 || (Number(major) === 3 && Number(minor) < 5))
    throw refusal(folder, `etcd ${text} is too old`, `use etcd 3.5 or newer; ${DOWNLOAD}`);
}

function printedVersion(folder: string, name: string): string {
  try {
    return execFileSync(join(folder, name), ['--version'], {
      encoding: 'utf8',
      timeout: VERSION_MS,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {},
    });
  } catch (error) {
    throw refusal(
      folder,
      `${name} --version failed: ${firstLine(messageOf(error))}`,
      `use programs for ${process.arch === 'x64' ? 'amd64' : process.arch}; ${DOWNLOAD}`,
      error,
    );
  }
}

const firstLine = (text: string) => text.split('\n')[0]?.trim() || 'nothing';

function refusal(folder: string, problem: string, hint: string, cause?: unknown): FairleadError {
  const object = folder === '' ? {} : { object: folder };
  return new FairleadError(`--control-plane${folder === '' ? '' : ` ${folder}`}: ${problem}`, {
    op: 'find the control plane',
    code: 'bad-control-plane',
    ...object,
    hint,
    ...(cause === undefined ? {} : { cause }),
  });
}
