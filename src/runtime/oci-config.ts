import { type IdRange, isMapped } from '../kernel/id-maps.ts';
import type { Container, Pod } from '../kube/types.ts';
import { containerCapabilities } from './capabilities.ts';
import { containerResources } from './container-resources.ts';
import { withoutDevices } from './device-access.ts';
import type { ProcessUser } from './image-user.ts';
import { seccompFilter } from './seccomp.ts';

/** A bind mount or tmpfs of a container, as config.json lists it. */
export interface OciMount {
  readonly destination: string;
  readonly type: string;
  readonly source: string;
  readonly options: readonly string[];
}

export interface OciConfigInput {
  readonly pod: Pod;
  readonly container: Container;
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  readonly cwd: string;
  readonly user: ProcessUser;
  /** Path of the mounted root file system. */
  readonly rootfs: string;
  /** The pause process whose network, IPC and UTS namespaces the container joins; null: the node's network. */
  readonly pausePid: number;
  /** Path of the process namespace that it joins; absent: a new one. */
  readonly pidNamespace?: string;
  readonly mounts: readonly OciMount[];
  /** Null: no control group. */
  readonly cgroupsPath: string | null;
  /** Available controllers: limits of others are omitted. */
  readonly cgroupControllers: ReadonlySet<string>;
  /** The ids of this user namespace. */
  readonly ids: { readonly isPartial: boolean; readonly groups: readonly IdRange[] };
  /** Capabilities that this machine can grant. */
  readonly boundingSet: readonly string[];
  /** Whether its control group keeps it from devices. */
  readonly confinesDevices: boolean;
  /** The folder of profiles of type Localhost. */
  readonly seccompFolder: string;
  readonly tty: boolean;
}

const MASKED = [
  '/proc/acpi',
  '/proc/interrupts',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/scsi',
  '/sys/firmware',
  '/sys/devices/virtual/powercap',
];
const READONLY = ['/proc/asound', '/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

/** Builds the OCI runtime's config.json (opencontainers/runtime-spec 1.0.2) of a container. */
export function ociConfig(input: OciConfigInput): object {
  const { pod, container, pausePid } = input;
  const security = container.securityContext ?? {};
  const privileged = security.privileged === true;
  const wanted = containerCapabilities(security, input.boundingSet);
  const capabilities =
    privileged || input.confinesDevices ? wanted : withoutDevices(wanted, security.capabilities?.add);
  const { hostNetwork = false, hostPID = false, hostIPC = false } = pod.spec ?? {};
  const masked = !privileged && security.procMount !== 'Unmasked';
  const seccomp = seccompFilter(pod, container, capabilities, input.seccompFolder);
  const namespacePath = (kind: string) => `/proc/${pausePid}/ns/${kind}`;
  return {
    ociVersion: '1.0.2',
    process: {
      terminal: input.tty,
      user: {
        uid: input.user.uid,
        gid: input.user.gid,
        additionalGids: [...new Set([...input.user.groups, ...groupsOf(pod)])],
      },
      args: input.args,
      env: [...input.env].map(([name, value]) => `${name}=${value}`),
      cwd: input.cwd,
      capabilities: {
        bounding: capabilities,
        effective: capabilities,
        permitted: capabilities,
        inheritable: [],
        ambient: [],
      },
      noNewPrivileges: security.allowPrivilegeEscalation === false,
      // The root of a user namespace may not lower it, and processes of a session may have more.
      ...(input.ids.isPartial ? {} : { oomScoreAdj: 0 }),
    },
    root: { path: input.rootfs, readonly: security.readOnlyRootFilesystem === true },
    mounts: [
      ...systemMounts(privileged, hostIPC, input.ids.groups),
      ...(input.cgroupsPath === null ? [] : [cgroupMount(privileged)]),
      ...input.mounts,
    ],
    linux: {
      namespaces: [
        { type: 'mount' },
        ...(hostPID ? [] : [{ type: 'pid', ...(input.pidNamespace ? { path: input.pidNamespace } : {}) }]),
        ...(hostIPC ? [] : [{ type: 'ipc', path: namespacePath('ipc') }]),
        { type: 'uts', path: namespacePath('uts') },
        ...(input.cgroupsPath === null ? [] : [{ type: 'cgroup' }]),
        ...(hostNetwork ? [] : [{ type: 'network', path: namespacePath('net') }]),
      ],
      ...(input.cgroupsPath === null
        ? {}
        : {
            cgroupsPath: input.cgroupsPath,
            resources: {
              ...containerResources(container, input.cgroupControllers),
              ...(privileged ? { devices: [{ allow: true, access: 'rwm' }] } : {}),
            },
          }),
      ...(masked ? { maskedPaths: MASKED, readonlyPaths: READONLY } : {}),
      ...(seccomp ? { seccomp } : {}),
    },
  };
}

function groupsOf(pod: Pod): number[] {
  const { supplementalGroups = [], fsGroup } = pod.spec?.securityContext ?? {};
  return [...supplementalGroups, ...(fsGroup === undefined ? [] : [fsGroup])];
}

/** The group "tty" of terminals. */
const TTY_GROUP = 5;

function systemMounts(privileged: boolean, hostIPC: boolean, groups: readonly IdRange[]): OciMount[] {
  const access = privileged ? 'rw' : 'ro';
  const shm: OciMount = hostIPC
    ? { destination: '/dev/shm', type: 'bind', source: '/dev/shm', options: ['rbind', 'rw'] }
    : {
        destination: '/dev/shm',
        type: 'tmpfs',
        source: 'shm',
        options: ['nosuid', 'noexec', 'nodev', 'mode=1777', 'size=65536k'],
      };
  return [
    { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
    {
      destination: '/dev',
      type: 'tmpfs',
      source: 'tmpfs',
      options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
    },
    {
      destination: '/dev/pts',
      type: 'devpts',
      source: 'devpts',
      options: [
        ...['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620'],
        ...(isMapped(groups, TTY_GROUP) ? [`gid=${TTY_GROUP}`] : []),
      ],
    },
    shm,
    { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
    { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', access] },
  ];
}

/** The container's own group, in which programs read their limits. */
const cgroupMount = (privileged: boolean): OciMount => ({
  destination: '/sys/fs/cgroup',
  type: 'cgroup',
  source: 'cgroup',
  options: ['nosuid', 'noexec', 'nodev', 'relatime', privileged ? 'rw' : 'ro'],
});
