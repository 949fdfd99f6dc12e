import { inUserNamespace, mappedIds } from '../kernel/id-maps.ts';
import type { Container, Pod } from '../kube/types.ts';
import { containerEnvironment, type EnvironmentSources } from './environment.ts';
import { createTextCount, expand } from './expansion.ts';
import { containerUser, type ProcessUser } from './image-user.ts';
import { ociConfig } from './oci-config.ts';
import { type Image, mountRootfs } from './rootfs.ts';
import { makeTerminationLog } from './termination-message.ts';
import { volumeMounts } from './volumes.ts';

/** The inputs of a container's start. */
export interface Launch {
  readonly pod: Pod;
  readonly container: Container;
  readonly pausePid: number;
  /** The process namespace of another container that it joins. */
  readonly pidNamespace?: string;
  readonly ips: readonly string[];
  readonly volumes: ReadonlyMap<string, string>;
  /** The current values that variables refer to. */
  readonly environment: () => Promise<EnvironmentSources>;
  readonly files: { readonly resolvConf: string; readonly hosts: string; readonly hostname: string };
}

/** The environment of one run of a container. */
export interface RunContext {
  /** The folder of the run. */
  readonly bundle: string;
  /** Null: no control group. */
  readonly cgroupsPath: string | null;
  readonly cgroupControllers: ReadonlySet<string>;
  /** Capabilities that this machine can grant. */
  readonly boundingSet: readonly string[];
  /** Whether control groups keep containers from devices. */
  readonly confinesDevices: boolean;
  /** The folder of seccomp profiles of type Localhost. */
  readonly seccompFolder: string;
  /** Takes an open file and returns a path to it that no pod can change. */
  readonly pin: (fd: number) => string;
}

/** Mounts the run's root and describes the run to the OCI runtime (its config.json). */
export function containerConfig(
  launch: Launch,
  environment: EnvironmentSources,
  image: Image,
  { bundle, pin, ...place }: RunContext,
): { readonly config: object; readonly user: ProcessUser } {
  const { container, pod } = launch;
  const env = containerEnvironment(container, image.env, environment);
  if (container.tty && !env.has('TERM')) env.set('TERM', 'xterm');
  const count = createTextCount();
  const expanded = (part: string) => {
    const text = expand(part, env);
    count(text);
    return text;
  };
  const entrypoint = container.command?.map(expanded) ?? image.entrypoint;
  const args = container.args?.map(expanded) ?? (container.command ? [] : image.command);
  const file = (source: string, destination: string) => ({
    destination,
    type: 'bind',
    source,
    options: ['bind', 'rprivate', 'rw'],
  });
  const mounts = [
    ...image.mounts,
    file(launch.files.resolvConf, '/etc/resolv.conf'),
    file(launch.files.hosts, '/etc/hosts'),
    file(launch.files.hostname, '/etc/hostname'),
    file(makeTerminationLog(bundle), container.terminationMessagePath ?? '/dev/termination-log'),
    ...volumeMounts(pod, container, launch.volumes, env, pin),
  ];
  const points = mounts.map(({ destination }) => destination);
  const hasDevices = place.confinesDevices || container.securityContext?.privileged === true;
  const rootfs = mountRootfs(image, bundle, { mountPoints: points, hasDevices });
  const user = containerUser(pod, container, image.user, rootfs);
  const config = ociConfig({
    pod,
    container,
    args: [...entrypoint, ...args],
    env,
    cwd: container.workingDir || image.workingDir || '/',
    user,
    rootfs,
    pausePid: launch.pausePid,
    ...(launch.pidNamespace ? { pidNamespace: launch.pidNamespace } : {}),
    mounts,
    ...place,
    ids: { isPartial: inUserNamespace(), groups: mappedIds('gid') },
    tty: container.tty === true,
  });
  return { config, user };
}
