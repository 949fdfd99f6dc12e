// Compiles bpf/*.bpf.c into modules of src/dataplane/ebpf/generated/, which carry the objects as text: nobody who uses
// or works on Fairlead needs a compiler, but who changes the C sources does.
//
//   node tools/build-bpf.mjs           write the modules
//   node tools/build-bpf.mjs --check   compare the sources with the modules; with clang, compare a rebuild too
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const sources = join(root, 'bpf');
const generated = join(root, 'src/dataplane/ebpf/generated');
/** Other versions write other, equally good instructions: the shipped objects are of this one. */
const CLANG = 'clang-14';
const FLAGS = ['-O2', '-target', 'bpf', '-mcpu=v3', '-Wall', '-Werror', '-fno-ident'];

/** Names of the objects: "socket-lb" for bpf/socket-lb.bpf.c. */
export function objectNames() {
  return readdirSync(sources)
    .filter((file) => file.endsWith('.bpf.c'))
    .map((file) => basename(file, '.bpf.c'));
}

/** A hash of everything that an object is built from: its source, all headers, the compiler's name and flags. */
export function sourceHash(name) {
  const hash = createHash('sha256').update(JSON.stringify([CLANG, FLAGS]));
  const files = readdirSync(sources).filter((file) => file.endsWith('.h') || file === `${name}.bpf.c`);
  for (const file of files.sort()) hash.update(`${file}\0`).update(readFileSync(join(sources, file)));
  return hash.digest('hex');
}

/** Whether the compiler that the shipped objects are made by is here. */
export function hasCompiler() {
  return spawnSync(CLANG, ['--version'], { stdio: 'ignore' }).status === 0;
}

/** The object as the compiler writes it from the sources of now. */
export function compile(name) {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-bpf-'));
  try {
    const out = join(folder, `${name}.o`);
    const system = `/usr/include/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu`;
    // From the sources' own folder: paths would otherwise find their way into the object.
    execFileSync(CLANG, [...FLAGS, '-idirafter', system, '-c', `${name}.bpf.c`, '-o', out], {
      cwd: sources,
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    return readFileSync(out);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export const modulePath = (name) => join(generated, `${name}.ts`);

function moduleText(name, object) {
  const lines = object.toString('base64').match(/.{1,100}/g) ?? [];
  return `// Written by tools/build-bpf.mjs from bpf/${name}.bpf.c; do not edit.
export const SOURCE_HASH = '${sourceHash(name)}';
/** The ELF object, in base64. */
export const OBJECT =
  '${lines.join("' +\n  '")}';
`;
}

/** What is wrong with a shipped object, or null. */
export async function check(name) {
  const { SOURCE_HASH, OBJECT } = await import(pathToFileURL(modulePath(name)).href);
  if (SOURCE_HASH !== sourceHash(name)) return `${name} was not rebuilt after its sources changed`;
  if (hasCompiler() && OBJECT !== compile(name).toString('base64'))
    return `${name} is not what ${CLANG} makes`;
  return null;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--check')) {
    for (const name of objectNames()) {
      const problem = await check(name);
      if (problem) {
        console.error(`${problem}: run node tools/build-bpf.mjs`);
        process.exitCode = 1;
      }
    }
  } else {
    mkdirSync(generated, { recursive: true });
    for (const name of objectNames()) writeFileSync(modulePath(name), moduleText(name, compile(name)));
  }
}
