import { join } from 'node:path';

export interface GinkgoRun {
  /** The folder with ginkgo, e2e.test and kubectl. */
  readonly assets: string;
  readonly kubeconfig: string;
  readonly nodes: number;
  readonly focus: string;
  readonly skips: readonly string[];
  readonly procs: string;
  readonly timeout: string;
  /** The folder of the results: report.json. */
  readonly output: string;
}

/** Returns the command that runs upstream's specs on a cluster, and writes report.json. */
export function ginkgoCommand(run: GinkgoRun): string[] {
  return [
    join(run.assets, 'ginkgo'),
    'run',
    `--procs=${run.procs}`,
    `--focus=${run.focus}`,
    ...run.skips.map((pattern) => `--skip=${pattern}`),
    `--timeout=${run.timeout}`,
    '--no-color',
    '--poll-progress-after=0',
    `--output-dir=${run.output}`,
    '--json-report=report.json',
    join(run.assets, 'e2e.test'),
    '--',
    `--kubeconfig=${run.kubeconfig}`,
    '--provider=local',
    `--kubectl-path=${join(run.assets, 'kubectl')}`,
    `--num-nodes=${run.nodes}`,
    '--allowed-not-ready-nodes=0',
    '--disable-log-dump',
    '--dump-logs-on-failure=false',
  ];
}
