import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = resolve(import.meta.dirname, '..', '..');

/** An empty project with the packed npm package of this repository. */
export interface PackedProject {
  /** The files of the package. */
  readonly packed: readonly string[];
  /** Runs a program in the project; resolves to its output. */
  run(file: string, ...words: readonly string[]): Promise<string>;
}

/**
 * Packs the npm package and puts it into an empty folder with no more than its dependencies, as npm would install it. Nothing
 * is downloaded: dependencies are those of this repository. `variables` are added to the environment of programs.
 */
export async function packedProject(
  folder: string,
  variables: Readonly<Record<string, string>>,
): Promise<PackedProject> {
  const env = {
    ...process.env,
    // The launcher would install Node.js where this machine's is too old.
    PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
    npm_config_offline: 'true',
    npm_config_update_notifier: 'false',
    ...variables,
  };
  const run = async (file: string, ...words: readonly string[]) =>
    (await promisify(execFile)(file, words, { cwd: folder, env, maxBuffer: 1 << 24, timeout: 180_000 }))
      .stdout;
  // Not by the script prepack: it would replace the bundle that other tests use.
  const output = await run('npm', 'pack', ROOT, '--ignore-scripts', '--json', '--pack-destination', folder);
  const [tarball] = Object.values(JSON.parse(output) as Record<string, Packed>);
  if (!tarball) throw new Error(`npm pack has packed nothing: ${output}`);
  const modules = join(folder, 'node_modules');
  mkdirSync(join(modules, 'fairlead'), { recursive: true });
  await run('tar', '-xzf', tarball.filename, '--strip-components=1', '-C', join(modules, 'fairlead'));
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lock;
  for (const [path, { dev }] of Object.entries(lock.packages)) {
    if (path === '' || dev || !existsSync(join(ROOT, path))) continue;
    cpSync(join(ROOT, path), join(folder, path), { recursive: true });
  }
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const dependencies = { fairlead: version };
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies }));
  await run('npm', 'rebuild', '--ignore-scripts', 'fairlead');
  return { packed: tarball.files.map(({ path }) => path), run };
}

interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}
interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean }>>;
}
