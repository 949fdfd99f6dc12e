// Writes the definitions that the BPF programs and the agent share, so that neither repeats them by hand:
//   src/dataplane/ebpf/generated/*.ts       bpf/*.bpf.c compiled, as text: only who changes the C sources needs a compiler
//   src/dataplane/ebpf/generated/layout.ts  the maps: kinds, sizes, offsets of fields, enums, from the objects' BTF
//   bpf/ejection-rules.h                    the constants of src/failover/ejection-rules.ts
//
//   node tools/build-bpf.mjs           write them
//   node tools/build-bpf.mjs --check   compare them with their sources; with clang and libbpf's headers, compare a rebuild too
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { EJECTION_RULES } from '../src/failover/ejection-rules.ts';
import { readMapTypes } from './bpf-types.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const sources = join(root, 'bpf');
const generated = join(root, 'src/dataplane/ebpf/generated');
const rulesPath = join(sources, 'ejection-rules.h');
const layoutPath = join(generated, 'layout.ts');
/** Other versions emit other, equally good instructions: this one makes the shipped objects. */
const CLANG = 'clang-14';
const systemHeaders = `/usr/include/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu`;
const FLAGS = ['-O2', '-target', 'bpf', '-mcpu=v3', '-Wall', '-Werror', '-fno-ident'];
/** The agent's names for enum bpf_map_type. */
const MAP_KINDS = { 1: 'hash', 2: 'array', 9: 'lruHash', 11: 'lpmTrie', 24: 'skStorage', 27: 'ringbuf' };

/** Returns the names of the objects: "socket-lb" for bpf/socket-lb.bpf.c. */
function objectNames() {
  return readdirSync(sources)
    .filter((file) => file.endsWith('.bpf.c'))
    .map((file) => basename(file, '.bpf.c'));
}

/**
 * Returns a hash of everything that an object is built from: its source, all headers, the compiler's name
 * and flags.
 */
function sourceHash(name) {
  const hash = createHash('sha256').update(JSON.stringify([CLANG, FLAGS]));
  const files = readdirSync(sources).filter((file) => file.endsWith('.h') || file === `${name}.bpf.c`);
  for (const file of files.sort()) hash.update(`${file}\0`).update(readFileSync(join(sources, file)));
  return hash.digest('hex');
}

/** Returns true if the compiler of the shipped objects and the headers that they include (libbpf-dev) are installed. */
function hasCompiler() {
  const input = '#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include <bpf/bpf_endian.h>\n';
  const flags = ['-target', 'bpf', '-idirafter', systemHeaders, '-fsyntax-only', '-x', 'c', '-'];
  return spawnSync(CLANG, flags, { input, stdio: ['pipe', 'ignore', 'ignore'] }).status === 0;
}

/** Compiles a source file; `flags` are added to those of the shipped objects. */
function compile(name, flags = []) {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-bpf-'));
  try {
    const out = join(folder, `${name}.o`);
    // Runs in the sources' folder: other paths would become part of the object.
    execFileSync(CLANG, [...FLAGS, ...flags, '-idirafter', systemHeaders, '-c', `${name}.bpf.c`, '-o', out], {
      cwd: sources,
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    return readFileSync(out);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const modulePath = (name) => join(generated, `${name}.ts`);

function moduleText(name, object) {
  const lines = object.toString('base64').match(/.{1,100}/g) ?? [];
  return `// Written by tools/build-bpf.mjs from bpf/${name}.bpf.c; do not edit.
export const SOURCE_HASH = '${sourceHash(name)}';
/** The ELF object, in base64. */
export const OBJECT =
  '${lines.join("' +\n  '")}';
`;
}

/** The rules that the programs are compiled with. */
const PROGRAM_RULES = [
  'failureWindowMs',
  'minFailureDistanceMs',
  'firstEjectionMs',
  'maxEjectionMs',
  'programProbeMs',
  'maxReroutes',
  'programSample',
];

function rulesText() {
  const lines = PROGRAM_RULES.map((name) => {
    const constant = name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
    return `#define ${constant} ${EJECTION_RULES[name]}`;
  });
  return `/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Written by tools/build-bpf.mjs from src/failover/ejection-rules.ts; do not edit. */
#pragma once

${lines.join('\n')}
`;
}

/** Returns the module of the maps, from the type information of all objects. */
function layoutText() {
  const [maps, structs, enums] = [{}, {}, {}];
  const merge = (all, more, what) => {
    for (const [name, value] of Object.entries(more)) {
      if (all[name] && JSON.stringify(all[name]) !== JSON.stringify(value))
        throw new Error(`the objects differ in ${what} ${name}`);
      all[name] = value;
    }
  };
  for (const name of objectNames()) {
    const types = readMapTypes(compile(name, ['-g']));
    merge(maps, types.maps, 'map');
    merge(structs, types.structs, 'struct');
    merge(enums, types.enums, 'enum');
  }
  const constant = (name) => name.toUpperCase();
  const object = (fields) =>
    `{ ${Object.entries(fields)
      .map(([name, value]) => `${name}: ${typeof value === 'string' ? `'${value}'` : value}`)
      .join(', ')} }`;
  const sorted = (all) => Object.entries(all).sort(([a], [b]) => (a < b ? -1 : 1));
  return `// Written by tools/build-bpf.mjs from the types of bpf/; do not edit.
// biome-ignore format: generated

/** The maps; those with maxEntries 1 that are not \`config\` grow with the cluster. */
export const MAPS = {
${sorted(maps)
  .map(([name, { type, keySize, valueSize, maxEntries, flags }]) => {
    const isRing = MAP_KINDS[type] === 'ringbuf';
    return `  ${name}: ${object({ name: `fl_${name}`.slice(0, 15), kind: MAP_KINDS[type], keySize, valueSize: isRing ? 0 : valueSize, maxEntries, flags })},`;
  })
  .join('\n')}
} as const;

// Structures: size, and offset of each field, in bytes.
${sorted(structs)
  .map(([name, fields]) => `export const ${constant(name)} = ${object(fields)} as const;`)
  .join('\n')}

// Enums.
${sorted(enums)
  .map(([name, values]) => `export const ${constant(name)} = ${object(values)} as const;`)
  .join('\n')}
`;
}

/** Returns the problem of a shipped object, or null. */
async function check(name) {
  const { SOURCE_HASH, OBJECT } = await import(pathToFileURL(modulePath(name)).href);
  if (SOURCE_HASH !== sourceHash(name)) return `${name} was not rebuilt after its sources changed`;
  if (hasCompiler() && OBJECT !== compile(name).toString('base64'))
    return `${name} is not what ${CLANG} makes`;
  return null;
}

async function checkAll() {
  const problems = await Promise.all(objectNames().map(check));
  if (readFileSync(rulesPath, 'utf8') !== rulesText())
    problems.push('bpf/ejection-rules.h differs from the rules');
  if (hasCompiler() && readFileSync(layoutPath, 'utf8') !== layoutText())
    problems.push('generated/layout.ts differs from the types of the objects');
  return problems.filter((problem) => problem !== null);
}

if (process.argv.includes('--check')) {
  for (const problem of await checkAll()) {
    console.error(`${problem}: run node tools/build-bpf.mjs`);
    process.exitCode = 1;
  }
} else {
  mkdirSync(generated, { recursive: true });
  writeFileSync(rulesPath, rulesText());
  for (const name of objectNames()) writeFileSync(modulePath(name), moduleText(name, compile(name)));
  writeFileSync(layoutPath, layoutText());
}
