import { modeObstacle, type Obstacle } from '../agent/mode-support.ts';
import type { Mode } from '../dataplane/dataplane.ts';
import { readCapabilities } from '../kernel/capabilities.ts';
import { type Feature, probeFeatures, probeNamedNetns } from '../kernel/feature-probes.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { controlGroupWarning, readControlGroups } from '../runtime/control-groups.ts';
import { installedCrunWarning } from '../runtime/crun-version.ts';
import { listClusters } from './state.ts';

/** Throws unless the process runs as root. */
export function requireRoot(command: string): void {
  if (process.getuid?.() === 0) return;
  throw new FairleadError(`fairlead ${command} must run as root: it creates network namespaces and mounts`, {
    op: `fairlead ${command}`,
    code: 'not-root',
    hint: `sudo fairlead ${command}`,
  });
}

/** Capabilities that a local cluster needs; containers without --privileged lack some of them. */
const NEEDED = ['CAP_SYS_ADMIN', 'CAP_NET_ADMIN', 'CAP_NET_RAW', 'CAP_MKNOD', 'CAP_SYS_CHROOT'] as const;
const PRIVILEGED =
  'run the container with --privileged (docker run --privileged, podman run --privileged), or Fairlead outside of it';

/** Returns the error of a root user without the needed rights; null: they are there. `status`: /proc/self/status. */
export function missingRights(status?: string): FairleadError | null {
  const effective = readCapabilities('CapEff', status);
  const missing = NEEDED.filter((name) => !effective.includes(name));
  if (missing.length === 0) return null;
  return new FairleadError(`root without ${missing.join(', ')}`, {
    op: 'check rights',
    code: 'EPERM',
    hint: PRIVILEGED,
  });
}

/** The features without which no cluster runs, with the kernel's name of each. */
const REQUIRED: Readonly<Partial<Record<Feature, string>>> = {
  veth: 'virtual Ethernet devices (CONFIG_VETH)',
  bridge: 'bridges (CONFIG_BRIDGE)',
  nf_tables: 'nf_tables with NAT (CONFIG_NF_TABLES, CONFIG_NFT_NAT), which all modes need',
  netdev: 'nf_tables chains at devices (CONFIG_NF_TABLES_NETDEV), which keep pods to their own addresses',
};
const VXLAN = 'VXLAN devices (CONFIG_VXLAN)';

/** Throws unless the process runs as root, or in the namespaces of the user whose cluster it is. */
export function requireOwner(command: string, cluster: string): void {
  if (process.getuid?.() === 0) return;
  const isOwn = listClusters().includes(cluster);
  throw new FairleadError(
    isOwn ? `cluster ${cluster} is stopped` : `you have no cluster of the name ${cluster}`,
    {
      op: `fairlead ${command}`,
      code: isOwn ? 'not-running' : 'no-cluster',
      hint: isOwn
        ? `start it: fairlead up --name ${cluster}`
        : `start one: fairlead up; for a cluster of root: sudo fairlead ${command}`,
    },
  );
}

/**
 * Checks the rights and the kernel features that a local cluster needs by using them, before anything is created. Throws
 * FairleadError that names the first one that is missing.
 */
export function requireKernel({ vxlan = false }: { readonly vxlan?: boolean } = {}): void {
  const rights = missingRights();
  if (rights !== null) throw rights;
  try {
    probeNamedNetns();
  } catch (error) {
    throw featureError('network namespaces (CONFIG_NET_NS)', error);
  }
  const needed = { ...REQUIRED, ...(vxlan ? { vxlan: VXLAN } : {}) };
  const failures = probeFeatures([...(Object.keys(needed) as Feature[]), 'sysctls']);
  for (const [feature, error] of failures) throw featureError(needed[feature] ?? feature, error, feature);
}

/** Returns the error of a feature that failed: forbidden, or missing. */
export function featureError(name: string, cause: unknown, feature?: Feature): FairleadError {
  const details = { op: 'check kernel', cause } as const;
  if (feature === 'sysctls')
    return new FairleadError(`the network settings below /proc/sys cannot be written: ${messageOf(cause)}`, {
      ...details,
      code: 'EACCES',
      hint: PRIVILEGED,
    });
  if (hasCode(cause, 'EPERM', 'EACCES'))
    return new FairleadError(`${name} may not be used here: ${messageOf(cause)}`, {
      ...details,
      code: 'EPERM',
      hint: `a seccomp, AppArmor or SELinux profile forbids it: ${PRIVILEGED}`,
    });
  return new FairleadError(`this kernel lacks ${name}: ${messageOf(cause)}`, {
    ...details,
    code: 'missing-kernel-feature',
    hint: 'install the kernel modules of your distribution, or use a kernel with this feature',
  });
}

/** Returns why a local cluster cannot run a mode on this machine; null: it can, as far as can be seen. */
export function clusterModeObstacle(mode: Mode): Obstacle | null {
  const obstacle = modeObstacle(mode);
  if (obstacle !== null || mode !== 'ebpf' || readControlGroups() !== null) return obstacle;
  return {
    reason: 'the cgroup v2 hierarchy at /sys/fs/cgroup cannot be written',
    fix: 'mount it writable, or use another mode',
  };
}

/** Returns warnings about programs and control groups of this machine; they do not keep a local cluster from running. */
export async function programWarnings(): Promise<string[]> {
  return [await installedCrunWarning(), controlGroupWarning()].filter((warning) => warning !== null);
}
