// Compiles the CNI plugin, cni/plugin.c, for both architectures:
//   src/network/cni/generated/plugin-programs.ts  the programs, as text: only who changes the C sources needs a compiler
//
//   node tools/build-cni.mjs           write it
//   node tools/build-cni.mjs --check   compare it with its sources; with clang and lld, compare a rebuild too
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const sources = join(root, 'cni');
const generated = join(root, 'src/network/cni/generated/plugin-programs.ts');
/** Other versions emit other, equally good instructions: these make the shipped programs. */
const [CLANG, LINKER] = ['clang-14', 'ld.lld-14'];
const COMPILE = ['-Os', '-Wall', '-Wextra', '-Werror', '-ffreestanding', '-fno-stack-protector'];
const PLAIN = ['-fno-asynchronous-unwind-tables', '-fno-ident'];
const LINK = ['-static', '-nostdlib', '-s', '--build-id=none', '-z', 'noexecstack'];
/** Node.js' names of the architectures, and the compiler's. */
const ARCHITECTURES = { x64: 'x86_64', arm64: 'aarch64' };

function sourceHash() {
  const hash = createHash('sha256').update(JSON.stringify([CLANG, LINKER, COMPILE, PLAIN, LINK]));
  for (const file of readdirSync(sources).sort())
    hash.update(`${file}\0`).update(readFileSync(join(sources, file)));
  return hash.digest('hex');
}

const hasCompiler = () =>
  [CLANG, LINKER].every((tool) => spawnSync(tool, ['--version'], { stdio: 'ignore' }).status === 0);

function compile(machine) {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-cni-'));
  const options = { cwd: sources, stdio: ['ignore', 'inherit', 'inherit'] };
  try {
    const [object, program] = [join(folder, 'plugin.o'), join(folder, 'plugin')];
    const target = `--target=${machine}-linux-gnu`;
    execFileSync(CLANG, [target, ...COMPILE, ...PLAIN, '-c', 'plugin.c', '-o', object], options);
    execFileSync(LINKER, [...LINK, object, '-o', program], options);
    return readFileSync(program);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function moduleText() {
  const programs = Object.entries(ARCHITECTURES).map(([name, machine]) => {
    const lines =
      compile(machine)
        .toString('base64')
        .match(/.{1,100}/g) ?? [];
    return `  ${name}:\n    '${lines.join("' +\n    '")}',\n`;
  });
  return `// Written by tools/build-cni.mjs from cni/; do not edit.
export const SOURCE_HASH = '${sourceHash()}';
/** The static programs by architecture, in base64. */
export const PROGRAMS = {
${programs.join('')}} as const;
`;
}

if (process.argv.includes('--check')) {
  const { SOURCE_HASH } = await import(pathToFileURL(generated).href);
  const problem =
    SOURCE_HASH !== sourceHash()
      ? 'the CNI plugin was not rebuilt after its sources changed'
      : hasCompiler() && readFileSync(generated, 'utf8') !== moduleText()
        ? `the CNI plugin is not what ${CLANG} and ${LINKER} make`
        : null;
  if (problem !== null) {
    console.error(`${problem}: run node tools/build-cni.mjs`);
    process.exitCode = 1;
  }
} else {
  mkdirSync(dirname(generated), { recursive: true });
  writeFileSync(generated, moduleText());
}
