// Builds everything that a release consists of, twice, and fails if the two builds differ:
//   tools/release [--out dist/release]
// The npm package, an OCI image for each architecture (as a tar of its layout), the Helm chart, an SBOM (SPDX 2.3 JSON), and
// SHA256SUMS. Uncommitted changes are refused; --dirty builds nevertheless, for tests. Needs npm, git, tar, gzip, apt-get
// and dpkg-deb. It publishes nothing.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { checksumText, debianComponent, differences, npmComponents, spdxDocument } from './release-parts.ts';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = parseArgs({
  options: {
    out: { type: 'string', default: join(root, 'dist', 'release') },
    dirty: { type: 'boolean', default: false },
  },
});
const out = resolve(values.out);
const run = (command, args, options = {}) =>
  execFileSync(command, args, {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 1 << 26,
    ...options,
  }).toString();
const sha256 = (file) => createHash('sha256').update(readFileSync(file)).digest('hex');
const json = (path) => JSON.parse(readFileSync(join(root, path), 'utf8'));

const { version } = json('package.json');
if (run('git', ['status', '--porcelain']).trim() !== '' && !values.dirty) {
  console.error(
    'fairlead: the working tree has uncommitted changes: commit them, so that the release can be built again',
  );
  process.exit(1);
}
const epoch = Number(run('git', ['log', '-1', '--format=%ct']).trim());
process.env.SOURCE_DATE_EPOCH = String(epoch);

/** Packs a folder so that equal files make an equal archive. */
function pack(folder, name, file, compressed) {
  const tar = [
    ...['--numeric-owner', '--owner=0', '--group=0', '--sort=name', `--mtime=@${epoch}`, '--format=ustar'],
    ...['--mode=u=rwX,go=rX', '-C', folder, '-cf', compressed ? `${file}.tar` : file, name],
  ];
  run('tar', tar);
  if (!compressed) return;
  writeFileSync(file, execFileSync('gzip', ['-9', '-n', '-c', `${file}.tar`], { maxBuffer: 1 << 28 }));
  rmSync(`${file}.tar`);
}

/** Builds all files into a folder and returns their digests. */
function build(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const step = (what, action) => {
    const start = performance.now();
    const result = action();
    console.error(`fairlead: ${what}: ${((performance.now() - start) / 1000).toFixed(1)} s`);
    return result;
  };
  const contents = [];
  const add = (file, components) => contents.push({ file, sha256: sha256(join(folder, file)), components });
  const npm = npmComponents(json('package-lock.json'));

  step('npm package', () => {
    // As npm does before it packs: only the files of this build.
    run(process.execPath, ['tools/build.mjs'], { env: { ...process.env, npm_lifecycle_event: 'prepack' } });
    const [{ filename }] = Object.values(
      JSON.parse(run('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder])),
    );
    add(filename, npm);
  });
  for (const arch of ['amd64', 'arm64']) {
    step(`image for ${arch}`, () => {
      const layout = join(folder, 'image');
      const list = join(folder, 'packages.json');
      run(process.execPath, ['tools/image.mjs', '--arch', arch, '--out', layout, '--packages', list]);
      const file = `fairlead-${version}-image-${arch}.tar`;
      pack(layout, '.', join(folder, file), false);
      const packages = JSON.parse(readFileSync(list, 'utf8'));
      add(file, [...npm, ...packages.npm, ...packages.debian.map(debianComponent)]);
      rmSync(layout, { recursive: true });
      rmSync(list);
    });
  }
  step('Helm chart', () => {
    const file = `fairlead-${version}-chart.tgz`;
    pack(join(root, 'deploy', 'helm'), 'fairlead', join(folder, file), true);
    add(file, []);
  });
  const sbom = spdxDocument({ version, created: epoch, contents });
  writeFileSync(join(folder, `fairlead-${version}.spdx.json`), `${JSON.stringify(sbom, null, 2)}\n`);
  return new Map(readdirSync(folder).map((file) => [file, sha256(join(folder, file))]));
}

const [first, second] = [`${out}.first`, `${out}.second`];
const digests = build(first);
const differing = differences(digests, build(second));
if (differing.length > 0) {
  console.error(`fairlead: two builds differ, see ${first} and ${second}:\n${differing.join('\n')}`);
  process.exit(1);
}
writeFileSync(join(first, 'SHA256SUMS'), checksumText(digests));
rmSync(second, { recursive: true });
rmSync(out, { recursive: true, force: true });
renameSync(first, out);
process.stdout.write(checksumText(digests));
