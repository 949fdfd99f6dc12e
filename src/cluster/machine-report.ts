import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import type { Mode } from '../dataplane/dataplane.ts';
import { probeFeatures } from '../kernel/feature-probes.ts';
import { identify, isRunning, signalProcess } from '../kernel/process-identity.ts';
import { openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listRoutes } from '../kernel/rtnetlink/routes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { requireCatatonit } from '../runtime/catatonit.ts';
import { controlGroupWarning, readControlGroups } from '../runtime/control-groups.ts';
import { installedCrunWarning } from '../runtime/crun-version.ts';
import { runCommand } from '../runtime/oci-runtime.ts';
import { clusterModeObstacle, requireKernel } from './requirements.ts';
import { insideWords, makeNamespaces } from './rootless/make-namespaces.ts';
import { userModeObstacle } from './rootless/refusals.ts';
import { isRootless, ROOTLESS } from './rootless/rootless.ts';
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
const END_POLL_MS = 2;
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
  if (process.getuid?.() !== 0) return userReport(programs);
  const cluster = attempt('local clusters', 'no', () => requireKernel());
  if (cluster.state !== 'yes') return [cluster, ...programs, rootless()];
  return [cluster, ...programs, ...clusterFacts(), egress(), rootless()];
}

/** What the clusters of this user can do, tried with the rights that they have. */
const clusterFacts = (): readonly MachineFact[] => [stateFolder(), ...MODES.map(modeFact), vxlan(), limits()];

/** The report of an ordinary user, tried inside namespaces as `up` makes them, which end with it. */
async function userReport(programs: readonly MachineFact[]): Promise<readonly MachineFact[]> {
  const what = 'clusters of ordinary users';
  const known = rootless();
  if (known.state !== 'yes') return [known, ...programs];
  try {
    const facts = await factsInside();
    return [yes(what), ...programs, ...facts, wayOut()];
  } catch (error) {
    return [not(what, 'no', error), ...programs];
  }
}

/** The variable that asks a process inside a user's namespaces for the facts of them alone, as JSON. */
export const FACTS_INSIDE = 'FAIRLEAD_FACTS_INSIDE';

/** Runs this program again inside new namespaces of the user. Throws FairleadError if no cluster could run in them. */
async function factsInside(): Promise<readonly MachineFact[]> {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-doctor-'));
  let holder: number | null = null;
  try {
    holder = await makeNamespaces(folder);
    const words = [...insideWords(holder), '--', process.execPath, ...process.execArgv];
    const { stdout, stderr, status } = spawnSync('nsenter', [...words, ...process.argv.slice(1)], {
      encoding: 'utf8',
      env: { ...process.env, FAIRLEAD_STATE: stateRoot(), [ROOTLESS]: '1', [FACTS_INSIDE]: '1' },
    });
    if (status !== 0)
      throw new FairleadError(stderr.replace(/^fairlead: /, '').trim(), {
        op: 'fairlead doctor',
        code: 'missing-kernel-feature',
      });
    return JSON.parse(stdout) as MachineFact[];
  } finally {
    if (holder !== null) await endProcess(holder);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Kills a child of this process, and waits until it has ended. */
async function endProcess(pid: number): Promise<void> {
  const identity = identify(pid);
  if (identity === null) return;
  signalProcess(identity, 'SIGKILL');
  while (isRunning(identity)) await setTimeout(END_POLL_MS);
}

/** What the process inside answers. Throws FairleadError if no cluster can run there. */
export function reportInside(): readonly MachineFact[] {
  requireKernel();
  return clusterFacts();
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
    state: isRootless() ? 'no' : 'limited',
    why: isRootless()
      ? messageOf(failure)
      : `the file system cannot hold those of containers (${messageOf(failure)}): clusters are kept in memory`,
    fix: 'set FAIRLEAD_STATE to a folder on ext4, xfs or btrfs, such as a volume of the container',
  };
}

function modeFact(mode: Mode): MachineFact {
  const obstacle = (isRootless() ? userModeObstacle(mode) : null) ?? clusterModeObstacle(mode);
  const what = `mode ${mode}`;
  return obstacle === null ? yes(what) : { what, state: 'no', why: obstacle.reason, fix: obstacle.fix };
}

function vxlan(): MachineFact {
  const failure = probeFeatures(['vxlan']).get('vxlan');
  return failure === undefined ? yes('--overlay vxlan') : not('--overlay vxlan', 'no', failure);
}

const USER_LIMITS_FIX = 'start the cluster as root: sudo fairlead up';

function limits(): MachineFact {
  const what = 'CPU and memory limits';
  const warning = controlGroupWarning();
  if (warning !== null)
    return {
      ...{ what, state: 'no', why: warning },
      fix: isRootless() ? USER_LIMITS_FIX : 'mount cgroup2 writable at /sys/fs/cgroup',
    };
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
