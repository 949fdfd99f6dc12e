import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { conformanceDocument } from './conformance-document.ts';
import { ginkgoCommand } from './ginkgo.ts';
import { readReport, type SpecResult, specNames } from './ginkgo-report.ts';
import { GROUPS, groupNamed, isOfGroup } from './groups.ts';
import { KERNEL_NEEDS } from './not-applicable.ts';
import { exactly, finishedSpecs, loadResults, saveResults } from './results.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const FAIRLEAD = join(ROOT, 'fairlead');
const DOCUMENT = join(ROOT, 'docs', 'conformance.md');
const USAGE = `usage: node tests/e2e/run.ts GROUP [--mode M] [--ip-family F] [--focus REGEXP] [--resume] [--procs N] [--timeout 60m] [--keep] [--no-save]
       node tests/e2e/run.ts --document
groups: ${GROUPS.filter(({ real }) => !real)
  .map(({ name }) => name)
  .join(', ')}`;

/** Runs a group of upstream's specs on a new local cluster, saves the results, and renders docs/conformance.md. */
function main(): number {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      mode: { type: 'string', default: 'nftables' },
      'ip-family': { type: 'string', default: 'ipv4' },
      focus: { type: 'string' },
      resume: { type: 'boolean', default: false },
      procs: { type: 'string', default: '4' },
      timeout: { type: 'string', default: '60m' },
      name: { type: 'string', default: 'e2e' },
      keep: { type: 'boolean', default: false },
      'no-save': { type: 'boolean', default: false },
      document: { type: 'boolean', default: false },
    },
  });
  if (values.document) return writeDocument();
  const assets = process.env['KUBEBUILDER_ASSETS'];
  if (positionals.length !== 1 || !assets) {
    process.stderr.write(
      `${USAGE}\n${assets ? '' : 'KUBEBUILDER_ASSETS must name the folder with e2e.test, ginkgo, kubectl and images/\n'}`,
    );
    return 2;
  }
  const group = groupNamed(positionals[0] ?? '');
  if (group.real) throw new Error(`${group.name} runs on real kubelets: tests/e2e/README.md`);
  const { mode, 'ip-family': family, name } = values;
  const done = values.resume ? finishedSpecs(group.name, mode, family) : [];
  const missing = KERNEL_NEEDS.filter(({ isThere }) => !isThere());
  const output = mkdtempSync(join(tmpdir(), 'fairlead-e2e-'));
  const fairlead = (...args: string[]) =>
    execFileSync(FAIRLEAD, [...args, '--name', name], { cwd: ROOT, encoding: 'utf8' }).trim();

  const access = group.hostAccess ? ['--host-access=services'] : [];
  fairlead('up', '--detach', '--nodes', `${group.nodes}`, '--mode', mode, '--ip-family', family, ...access);
  try {
    fairlead('image', 'load', join(assets, 'images'));
    const kubeconfig = fairlead('kubeconfig');
    const kubectl = join(assets, 'kubectl');
    for (let node = 1; group.zones !== undefined && node <= group.nodes; node++) {
      const zone = `topology.kubernetes.io/zone=zone-${((node - 1) % group.zones) + 1}`;
      execFileSync(kubectl, [`--kubeconfig=${kubeconfig}`, 'label', 'node', `node-${node}`, zone]);
    }
    const log = openSync(join(output, 'log.txt'), 'w');
    const report = join(output, 'report.json');
    const [program = '', ...words] = ginkgoCommand({
      assets,
      kubeconfig,
      nodes: group.nodes,
      focus: values.focus ?? group.focus,
      skips: [group.skip, ...missing.map(({ specs }) => specs), ...done.map(exactly)],
      procs: values.procs,
      timeout: values.timeout,
      output,
    });
    const { status } = spawnSync(program, words, { cwd: output, stdio: ['ignore', log, log] });
    closeSync(log);
    const text = readFileSync(report, 'utf8');
    // After its timeout ginkgo also reports specs that were not selected.
    const ran = readReport(text).filter(({ name }) => isOfGroup(group, name));
    const version = execFileSync(join(assets, 'e2e.test'), ['--version'], { encoding: 'utf8' }).trim();
    if (!values['no-save']) {
      const all = specNames(text).filter((spec) => isOfGroup(group, spec));
      const left = all.flatMap((spec): SpecResult[] => {
        const need = missing.find(({ specs }) => new RegExp(specs).test(spec));
        return need ? [{ name: spec, state: 'skipped', reason: need.reason }] : [];
      });
      saveResults({ group: group.name, mode, family, version }, [...ran, ...left], all);
      writeDocument();
    }
    const failed = ran.filter(({ state }) => state === 'failed');
    for (const spec of failed) process.stdout.write(`failed: ${spec.name}\n        ${spec.reason}\n`);
    const passed = ran.filter(({ state }) => state === 'passed').length;
    const skipped = ran.length - passed - failed.length;
    process.stdout.write(`${passed} passed, ${failed.length} failed, ${skipped} skipped; log: ${output}\n`);
    return failed.length > 0 || status !== 0 ? 1 : 0;
  } finally {
    if (!values.keep) fairlead('down');
  }
}

function writeDocument(): number {
  writeFileSync(DOCUMENT, conformanceDocument(loadResults()));
  return 0;
}

process.exitCode = main();
