import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { probeFeatures } from '../kernel/feature-probes.ts';
import { openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listRoutes } from '../kernel/rtnetlink/routes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { requireCatatonit } from '../runtime/catatonit.ts';
import { controlGroupWarning, readControlGroups } from '../runtime/control-groups.ts';
import { installedCrunWarning } from '../runtime/crun-version.ts';
import { runCommand } from '../runtime/oci-runtime.ts';
import { clusterModeObstacle, requireKernel } from './requirements.ts';
import { userNamespaceProblem } from './rootless/user-namespace-problem.ts';
import { wayOutObstacle } from './rootless/way-out.ts';
import { stateRoot } from './state.ts';
import { overlayFailure } from './state-folder.ts';

/** One thing that a machine can do, or not. "limited": clusters run without it, or with less. */
export interface MachineFact {
  readonly what: string;
  readonly state: 'yes' | 'limited' | 'no';
  /** Why not; empty: nothing is wrong. */
  readonly why: string;
  readonly fix: string | null;
}

const yes = (what: string): MachineFact => ({ what, state: 'yes', why: '', fix: null });
const not = (what: string, state: 'limited' | 'no', error: unknown): MachineFact => ({
  what,
  state,
  why: messageOf(error),
  fix: error instanceof FairleadError ? (error.hint ?? null) : null,
});

const MODES: readonly Mode[] = ['nftables', 'iptables', 'ipvs', 'ebpf', 'userspace'];
const DEFAULT_ROUTE = '0.0.0.0/0';

/** Tries what local clusters use, as `up` does, and reports it. Leaves nothing behind. */
export async function machineReport(): Promise<readonly MachineFact[]> {
  const programs = [
    await program('crun', ['--version']),
    await program('conmon', ['--version']),
    await requireCatatonit().then(
      () => yes('program catatonit'),
      (error: unknown) => not('program catatonit', 'no', error),
    ),
  ];
  // The rest is tried with root's rights, which an ordinary user has in namespaces of clusters only.
  if (process.getuid?.() !== 0) return [rootless(), ...programs, wayOut()];
  const cluster = attempt('local clusters', 'no', () => requireKernel());
  if (cluster.state !== 'yes') return [cluster, ...programs, rootless()];
  return [
    cluster,
    ...programs,
    stateFolder(),
    ...MODES.map(modeFact),
    vxlan(),
    limits(),
    egress(),
    rootless(),
  ];
}

function attempt(what: string, otherwise: 'limited' | 'no', work: () => void): MachineFact {
  try {
    work();
    return yes(what);
  } catch (error) {
    return not(what, otherwise, error);
  }
}

async function program(name: string, words: readonly string[]): Promise<MachineFact> {
  const what = `program ${name}`;
  try {
    await runCommand(name, words, { timeoutMs: 5000 });
  } catch (error) {
    return not(what, 'no', error);
  }
  const warning = name === 'crun' ? await installedCrunWarning() : null;
  return warning === null ? yes(what) : { what, state: 'limited', why: warning, fix: 'update crun' };
}

/** Images and containers' file systems, in the state folder or, before the first cluster, the nearest one that exists. */
function stateFolder(): MachineFact {
  const root = stateRoot();
  let folder = root;
  while (!existsSync(folder)) folder = dirname(folder);
  const what = `images and pods in ${root}`;
  const failure = overlayFailure(folder);
  if (failure === null) return yes(what);
  return {
    what,
    state: 'limited',
    why: `the file system cannot hold those of containers (${messageOf(failure)}): clusters are kept in memory`,
    fix: 'set FAIRLEAD_STATE to a folder on ext4, xfs or btrfs, such as a volume of the container',
  };
}

function modeFact(mode: Mode): MachineFact {
  const obstacle = clusterModeObstacle(mode);
  const what = `mode ${mode}`;
  return obstacle === null ? yes(what) : { what, state: 'no', why: obstacle.reason, fix: obstacle.fix };
}

function vxlan(): MachineFact {
  const failure = probeFeatures(['vxlan']).get('vxlan');
  return failure === undefined ? yes('--overlay vxlan') : not('--overlay vxlan', 'no', failure);
}

function limits(): MachineFact {
  const what = 'CPU and memory limits';
  const warning = controlGroupWarning();
  if (warning !== null)
    return { what, state: 'no', why: warning, fix: 'mount cgroup2 writable at /sys/fs/cgroup' };
  const { controllers } = readControlGroups() ?? { controllers: new Set<string>() };
  const missing = ['cpu', 'memory'].filter((name) => !controllers.has(name));
  if (missing.length === 0) return yes(what);
  return {
    what,
    state: 'limited',
    why: `the cgroup v2 hierarchy lacks: ${missing.join(', ')}`,
    fix: 'boot with v2 alone (systemd.unified_cgroup_hierarchy=1)',
  };
}

function egress(): MachineFact {
  using socket = openRouteSocket();
  const hasRoute = listRoutes(socket, { family: 'ipv4' }).some(
    ({ destination }) => destination === DEFAULT_ROUTE,
  );
  return hasRoute
    ? yes('--egress')
    : {
        what: '--egress',
        state: 'limited',
        why: 'this machine has no default route over IPv4',
        fix: 'connect it to a network, or use pods that need none',
      };
}

/** The egress of this user's clusters. */
function wayOut(): MachineFact {
  const obstacle = wayOutObstacle();
  if (obstacle === null) return yes('--egress');
  return { what: '--egress', state: 'no', why: obstacle.reason, fix: obstacle.fix };
}

function rootless(): MachineFact {
  const what = 'clusters of ordinary users';
  if (!existsSync('/proc/self/ns/user'))
    return { what, state: 'no', why: 'this kernel lacks user namespaces (CONFIG_USER_NS)', fix: null };
  const problem = userNamespaceProblem();
  return problem === null ? yes(what) : { what, state: 'no', why: problem.message, fix: problem.hint };
}

/** Returns the version of the kernel. */
export const kernelRelease = (): string => readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim();
