import { execFileSync, spawnSync } from 'node:child_process';
import {
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { canOpenSctp } from './not-applicable.ts';
import { cyclonusCases, cyclonusDocument, cyclonusSection } from './policy-reports.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const FAIRLEAD = join(ROOT, 'fairlead');
const REPORTS = join(ROOT, 'docs', 'conformance');
const AGNHOST = 'registry.k8s.io/e2e-test-images/agnhost';
const USAGE = `usage: node tests/e2e/policy-suites.ts network-policy-api|cyclonus [--mode M] [--only NAMES] [--exclude TAGS] [--keep] [--no-save]
--only: names of tests (network-policy-api), or tags of cases (cyclonus; "all": all), separated by commas
--exclude: tags of cases (cyclonus)\n`;

/** A suite of another project about network policies: one program that tests the cluster of a kubeconfig. */
interface PolicySuite {
  readonly nodes: number;
  /** The tag of agnhost that its pods have; the test bed's agnhost serves under this name. */
  readonly agnhost: string;
  /** A manifest in the folder of the programs that is applied before. */
  readonly manifest?: string;
  /** Returns the program and its arguments. `report` is the file that it writes. */
  readonly command: (run: {
    readonly mode: string;
    readonly report: string;
    readonly only: string | undefined;
    readonly exclude: string;
  }) => string[];
  /** The ending of its report. */
  readonly format: 'yaml' | 'xml';
  /** The ending of the document in docs/conformance. */
  readonly ending: string;
  /** Returns that document, null if the run is not kept, and the number of failed tests. `former`: the document before. */
  readonly kept: (
    report: string,
    run: { readonly mode: string; readonly only: string | undefined; readonly exclude: string },
    former: string,
  ) => { readonly text: string | null; readonly failed: number };
}

/** The tags of cyclonus' cases that run without options: a quarter of an hour. */
const CASES = 'action,target,peer-ipblock,peer-pods';

const SUITES: Readonly<Record<string, PolicySuite>> = {
  'network-policy-api': {
    nodes: 2,
    agnhost: '2.45',
    manifest: 'clusternetworkpolicies.yaml',
    command: ({ mode, report, only }) => [
      'network-policy-api.test',
      '-test.v',
      '-test.timeout=40m',
      '-conformance-profiles=ClusterNetworkPolicy',
      '-all-features',
      ...(canOpenSctp() ? [] : ['-no-sctp']),
      ...(only === undefined ? [] : [`-test.run=TestConformance/(${only.replaceAll(',', '|')})$`]),
      '-organization=fairlead',
      '-project=fairlead',
      '-url=https://www.npmjs.com/package/fairlead',
      `-version=${version()}`,
      '-contact=@fairlead',
      `-additional-info=fairlead up --mode ${mode}`,
      `-report-output=${report}`,
    ],
    format: 'yaml',
    ending: 'yaml',
    kept: (report, { only }) => {
      const counts = [...report.matchAll(/^ *Failed: (\d+)$/gm)].map(([, count]) => Number(count));
      const failed = counts.reduce((sum, count) => sum + count, 0);
      return { text: only === undefined ? report : null, failed };
    },
  },
  cyclonus: {
    nodes: 3,
    agnhost: '2.43',
    // Its model lets a policy block a pod's connection to itself, which the API excludes: --ignore-loopback.
    command: ({ report, only, exclude }) => [
      'cyclonus',
      'generate',
      '--ignore-loopback',
      '--server-protocol=TCP',
      '--server-port=80',
      `--include=${only === 'all' ? '' : (only ?? CASES)}`,
      `--exclude=${exclude}`,
      '--perturbation-wait-seconds=1',
      '--job-timeout-seconds=2',
      `--junit-results-file=${report}`,
    ],
    format: 'xml',
    ending: 'md',
    kept: (report, { mode, only = CASES, exclude }, former) => {
      const cases = cyclonusCases(report);
      const failed = cases.filter(({ problem }) => problem !== null).length;
      const section = cyclonusSection(cases, { include: only, exclude });
      return { text: cyclonusDocument(former, section, mode), failed };
    },
  },
};

/** Runs a suite on a new local cluster, and keeps its report in docs/conformance. Returns the exit status. */
function main(): number {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      mode: { type: 'string', default: 'nftables' },
      only: { type: 'string' },
      exclude: {
        type: 'string',
        default: 'sctp,multi-peer,upstream-e2e,example,end-port,namespaces-by-default-label',
      },
      name: { type: 'string', default: 'policy-suites' },
      keep: { type: 'boolean', default: false },
      'no-save': { type: 'boolean', default: false },
    },
  });
  const assets = process.env['KUBEBUILDER_ASSETS'];
  const [suiteName = ''] = positionals;
  const suite = SUITES[suiteName];
  if (!suite || positionals.length !== 1 || !assets) {
    process.stderr.write(`${USAGE}KUBEBUILDER_ASSETS: the folder with the suites, kubectl and images/\n`);
    return 2;
  }
  const { mode, name, only, exclude } = values;
  const output = mkdtempSync(join(tmpdir(), `fairlead-${suiteName}-`));
  const fairlead = (...args: string[]) =>
    execFileSync(FAIRLEAD, [...args, '--name', name], { cwd: ROOT, encoding: 'utf8' }).trim();
  fairlead('up', '--detach', '--nodes', `${suite.nodes}`, '--mode', mode);
  try {
    const images = agnhostAs(assets, suite.agnhost, join(output, 'images'));
    fairlead('image', 'load', images);
    rmSync(images, { recursive: true });
    const kubeconfig = fairlead('kubeconfig');
    if (suite.manifest !== undefined) {
      const manifest = join(assets, suite.manifest);
      execFileSync(join(assets, 'kubectl'), [`--kubeconfig=${kubeconfig}`, 'create', '-f', manifest]);
    }
    const log = openSync(join(output, 'log.txt'), 'w');
    const report = join(output, `report.${suite.format}`);
    const [program = '', ...words] = suite.command({ mode, report, only, exclude });
    const { status } = spawnSync(join(assets, program), words, {
      cwd: output,
      stdio: ['ignore', log, log],
      env: { ...process.env, KUBECONFIG: kubeconfig },
    });
    closeSync(log);
    let failures = 1;
    if (existsSync(report)) {
      const document = join(REPORTS, `${suiteName}-${mode}.${suite.ending}`);
      const written = readFileSync(report, 'utf8');
      const former = existsSync(document) ? readFileSync(document, 'utf8') : '';
      const { text, failed } = suite.kept(written, { mode, only, exclude }, former);
      failures = failed;
      process.stdout.write(text ?? written);
      mkdirSync(REPORTS, { recursive: true });
      if (!values['no-save'] && text !== null) writeFileSync(document, text);
    }
    process.stdout.write(`${program}: exit status ${status}; log: ${output}\n`);
    return status === 0 && failures === 0 ? 0 : 1;
  } finally {
    if (!values.keep) fairlead('down');
  }
}

/** Writes an OCI layout with the newest agnhost of the test bed under another tag, and returns its folder. */
function agnhostAs(assets: string, tag: string, folder: string): string {
  const from = join(assets, 'images');
  const REF = 'org.opencontainers.image.ref.name';
  const index = JSON.parse(readFileSync(join(from, 'index.json'), 'utf8')) as {
    manifests: { annotations: Record<string, string> }[];
  };
  const found = index.manifests.find(({ annotations }) => annotations[REF]?.startsWith(`${AGNHOST}:`));
  if (!found) throw new Error(`${from} has no image ${AGNHOST}`);
  const name = `${AGNHOST}:${tag}`;
  const annotations = { [REF]: name, 'io.containerd.image.name': name };
  mkdirSync(folder, { recursive: true });
  cpSync(join(from, 'oci-layout'), join(folder, 'oci-layout'));
  symlinkSync(join(from, 'blobs'), join(folder, 'blobs'));
  writeFileSync(
    join(folder, 'index.json'),
    JSON.stringify({ ...index, manifests: [{ ...found, annotations }] }),
  );
  return folder;
}

const version = () =>
  (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version;

process.exitCode = main();
