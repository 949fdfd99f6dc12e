import { parseQuantity } from '../kube/quantity.ts';
import type { Container, Pod } from '../kube/types.ts';
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
  /** Path of the root file system, mounted already. */
  readonly rootfs: string;
  /** The pause process whose network, IPC and UTS namespaces the container joins; null: the node's own network. */
  readonly pausePid: number;
  /** Path of the process namespace that it joins; absent: one of its own. */
  readonly pidNamespace?: string;
  readonly mounts: readonly OciMount[];
  readonly cgroupsPath: string;
  /** Controllers that can be used: limits of others are left out. */
  readonly cgroupControllers: ReadonlySet<string>;
  readonly tty: boolean;
}

// The default set of container runtimes (runtime-spec, Docker, containerd).
const DEFAULT_CAPABILITIES = [
  'CAP_AUDIT_WRITE',
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_MKNOD',
  'CAP_NET_BIND_SERVICE',
  'CAP_NET_RAW',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
];

const ALL_CAPABILITIES = (
  'CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE ' +
  'NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN ' +
  'SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE ' +
  'MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE'
)
  .split(' ')
  .map((name) => `CAP_${name}`);

const MASKED = [
  '/proc/acpi',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/scsi',
  '/sys/firmware',
];
const READONLY = ['/proc/asound', '/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

/** Builds the OCI runtime's config.json (opencontainers/runtime-spec 1.0.2) of a container. */
export function ociConfig(input: OciConfigInput): object {
  const { pod, container, pausePid } = input;
  const security = container.securityContext ?? {};
  const privileged = security.privileged === true;
  const capabilities = capabilitiesOf(security.capabilities, privileged);
  const { hostNetwork = false, hostPID = false, hostIPC = false } = pod.spec ?? {};
  const masked = !privileged && security.procMount !== 'Unmasked';
  const seccomp = seccompFilter(pod, container, capabilities);
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
      oomScoreAdj: 0,
    },
    root: { path: input.rootfs, readonly: security.readOnlyRootFilesystem === true },
    mounts: [...systemMounts(privileged, hostIPC), ...input.mounts],
    linux: {
      namespaces: [
        { type: 'mount' },
        ...(hostPID ? [] : [{ type: 'pid', ...(input.pidNamespace ? { path: input.pidNamespace } : {}) }]),
        ...(hostIPC ? [] : [{ type: 'ipc', path: namespacePath('ipc') }]),
        { type: 'uts', path: namespacePath('uts') },
        ...(hostNetwork ? [] : [{ type: 'network', path: namespacePath('net') }]),
      ],
      cgroupsPath: input.cgroupsPath,
      resources: resources(container, input.cgroupControllers, privileged),
      ...(masked ? { maskedPaths: MASKED, readonlyPaths: READONLY } : {}),
      ...(seccomp ? { seccomp } : {}),
    },
  };
}

function groupsOf(pod: Pod): number[] {
  const { supplementalGroups = [], fsGroup } = pod.spec?.securityContext ?? {};
  return [...supplementalGroups, ...(fsGroup === undefined ? [] : [fsGroup])];
}

function capabilitiesOf(
  change: { add?: string[]; drop?: string[] } | undefined,
  privileged: boolean,
): string[] {
  if (privileged) return ALL_CAPABILITIES;
  const full = (name: string) => (name.startsWith('CAP_') ? name : `CAP_${name}`);
  const drop = (change?.drop ?? []).map(full);
  const add = (change?.add ?? []).map(full);
  const base = drop.includes('CAP_ALL') ? [] : DEFAULT_CAPABILITIES.filter((name) => !drop.includes(name));
  if (add.includes('CAP_ALL')) return ALL_CAPABILITIES.filter((name) => !drop.includes(name));
  return [...new Set([...base, ...add])];
}

function systemMounts(privileged: boolean, hostIPC: boolean): OciMount[] {
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
      options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
    },
    shm,
    { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
    { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', access] },
  ];
}

const CPU_PERIOD = 100_000;

function resources(container: Container, controllers: ReadonlySet<string>, privileged: boolean): object {
  const limits = (container.resources?.limits ?? {}) as Record<string, unknown>;
  const requests = (container.resources?.requests ?? {}) as Record<string, unknown>;
  const cpuLimit = parseQuantity(String(limits['cpu'] ?? ''));
  const cpuRequest = parseQuantity(String(requests['cpu'] ?? limits['cpu'] ?? ''));
  const memory = parseQuantity(String(limits['memory'] ?? ''));
  const cpu = {
    ...(Number.isFinite(cpuLimit)
      ? { quota: Math.max(1000, Math.round(cpuLimit * CPU_PERIOD)), period: CPU_PERIOD }
      : {}),
    ...(Number.isFinite(cpuRequest) ? { shares: Math.max(2, Math.round(cpuRequest * 1024)) } : {}),
  };
  return {
    ...(controllers.has('cpu') && Object.keys(cpu).length > 0 ? { cpu } : {}),
    ...(controllers.has('memory') && Number.isFinite(memory)
      ? { memory: { limit: Math.round(memory) } }
      : {}),
    ...(privileged ? { devices: [{ allow: true, access: 'rwm' }] } : {}),
  };
}
