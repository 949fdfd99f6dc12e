import { becomeReady } from '../cluster/bring-up.ts';
import { resumeCluster } from '../cluster/creation.ts';
import { type Manifests, readManifests } from '../cluster/manifests.ts';
import { lockCluster } from '../cluster/name-lock.ts';
import type { Progress } from '../cluster/progress.ts';
import { removeCluster } from '../cluster/removal.ts';
import { restartTime } from '../cluster/restart-time.ts';
import { parsePublishedPorts } from '../cluster/service-port.ts';
import { restoreSnapshot } from '../cluster/snapshot.ts';
import { clusterPaths, readCluster, requireCluster } from '../cluster/state.ts';
import { prepareStateFolder } from '../cluster/state-folder.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { defineCommand, type Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { type Parsed, text, usageError, type Values } from './options.ts';
import { runAsUser } from './run-as-user.ts';
import { keepEvidence } from './run-evidence.ts';
import { refuseExisting, runName } from './run-name.ts';
import { followSignals, runProgram } from './run-program.ts';
import { startCluster, startProgress, OPTIONS as UP, withConfiguration } from './up.ts';

// Neither is a cluster in the background, nor does it belong in the user's kubeconfig.
const { detach: _, 'no-kubeconfig': __, name: ___, ...START } = UP;

const OPTIONS = {
  ...START,
  name: text('NAME', "the cluster's name; default: a new one for each run"),
  restore: text('FILE', 'start from a file of "snapshot" instead of an empty cluster', { main: true }),
  evidence: text(
    'DIR',
    "where the pods' logs and the events are kept if COMMAND fails; default: a new folder for temporary files",
  ),
} as const;

/** Options that a snapshot already has the values of. */
const OF_NEW_CLUSTERS = Object.keys(START).filter((name) => !['file', 'timeout'].includes(name));

export const command = defineCommand({
  name: 'run',
  summary: 'run a command with a local cluster, which is removed afterwards',
  description: [
    'Starts a local cluster as "up" does, runs COMMAND with KUBECONFIG (and FAIRLEAD_CLUSTER) set and with the caller\'s standard streams, removes the cluster in every case, also after Ctrl-C and SIGTERM, and exits with the status of COMMAND.',
    "If COMMAND or the start fails, the pods' logs and the events are printed and kept in a folder.",
  ],
  arguments: [],
  program: 'COMMAND…',
  options: OPTIONS,
  examples: ['run -f app.yaml -- go test ./e2e/...', 'run --nodes 3 -- sh -c "kubectl get nodes"'],
  async run(parsed, output) {
    const { given } = parsed;
    const fresh = parsed.options.restore === null;
    const other = fresh ? undefined : [...OF_NEW_CLUSTERS, 'name'].find((name) => given.has(name));
    if (other !== undefined)
      throw usageError('run', `--${other} does not apply to --restore: the snapshot has its value`);
    if (process.getuid?.() !== 0) return await runAsUser(parsed, START, output);
    const { options } = withConfiguration({
      ...parsed,
      options: { ...parsed.options, name: '', detach: true, 'no-kubeconfig': true },
    } as unknown as Parsed<typeof UP>);
    const name = fresh
      ? runName(parsed.options.name)
      : await restoreFrom(parsed.options.restore ?? '', output);
    const signals = followSignals();
    const lock = await lockCluster(name, 'fairlead run');
    try {
      if (fresh) refuseExisting(name);
    } catch (error) {
      lock.release();
      signals.stop();
      throw error;
    }
    try {
      await start(name, fresh, options, output);
      // The command may do with its cluster what a user may with one that runs: take a snapshot, stop it, start it again.
      lock.release();
      const status = signals.ended ?? (await runProgram(parsed.program, name, signals));
      // The command may have removed it.
      if (status !== 0 && readCluster(name) !== null)
        await keepEvidence(name, parsed.options.evidence, output);
      return status;
    } catch (error) {
      // A running cluster that did not become ready.
      if (hasCode(error, 'not-ready', 'refused')) await keepEvidence(name, parsed.options.evidence, output);
      throw error;
    } finally {
      // A start that failed has removed it, or has found a folder that is not a cluster's.
      if (readCluster(name) !== null) await removeCluster(name);
      lock.release();
      signals.stop();
    }
  },
});

async function restoreFrom(file: string, output: Output): Promise<string> {
  const memory = prepareStateFolder();
  if (memory !== null) output.err(wrapLines(`fairlead: ${memory}\n`, output.columns));
  return await restoreSnapshot(file);
}

/** Starts the cluster with its manifests. Throws FairleadError if it does not become ready, or an object is refused. */
async function start(
  name: string,
  fresh: boolean,
  options: Values<typeof UP>,
  output: Output,
): Promise<void> {
  const manifests = await readManifests(options.file);
  const progress = startProgress({ ...output, out: output.err });
  const applied = fresh
    ? (await startCluster(name, options, parsePublishedPorts(options.publish), manifests, progress)).applied
    : await resume(name, options.timeout, manifests, progress);
  const missing = manifests.problems.length + manifests.objects.length - applied.length;
  if (missing > 0)
    throw new FairleadError(`${missing} objects of the manifests were not applied, see above`, {
      op: 'fairlead run',
      code: 'refused',
    });
}

async function resume(name: string, timeout: number, manifests: Manifests, progress: Progress) {
  const stored = requireCluster(name);
  const { nodeState } = clusterPaths(name);
  const startedAgainAt = await restartTime(
    stored.nodes.map((node) => nodeState(node.name)),
    systemClock,
  );
  const state = await resumeCluster(stored, null, progress, timeout);
  const { signal } = new AbortController();
  return await becomeReady(state, manifests, progress, timeout, signal, startedAgainAt);
}
