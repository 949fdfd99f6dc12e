import { spawn } from 'node:child_process';
import { createWriteStream, existsSync, rmSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { findProgram } from '../kernel/program-path.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { counted, createLayerBudget, LAYER_LIMITS } from '../runtime/images/layer-limits.ts';
import { formatReference, parseReference } from '../runtime/images/reference.ts';

/** A program of this machine that has images. */
interface Builder {
  readonly file: string;
  /** Writes the archive of an image to its standard output. */
  readonly words: (name: string) => readonly string[];
  /** Docker and podman know short names; containerd has full ones. */
  readonly isFull: boolean;
}

const saved = (name: string) => ['save', name];
const BUILDERS: readonly Builder[] = [
  { file: 'docker', words: saved, isFull: false },
  { file: 'podman', words: saved, isFull: false },
  { file: 'nerdctl', words: saved, isFull: false },
  ...['default', 'k8s.io'].map((namespace) => ({
    file: 'ctr',
    words: (name: string) => ['--namespace', namespace, 'images', 'export', '-', name],
    isFull: true,
  })),
];
const MAX_ERROR = 2000;

/**
 * Calls `use` with the file of an archive: the subject itself, or a temporary file with standard input ("-"), or with an image
 * of docker, podman or containerd if there is no such file. `temporary`: the path of that file. Throws FairleadError "ENOENT"
 * with what was tried.
 */
export async function withImageFile<T>(
  subject: string,
  temporary: string,
  use: (file: string) => Promise<T>,
): Promise<T> {
  if (subject !== '-' && (existsSync(subject) || !isName(subject))) return await use(subject);
  try {
    if (subject === '-') await keep(process.stdin, temporary);
    else await saveFromBuilder(subject, temporary);
    return await use(temporary);
  } finally {
    rmSync(temporary, { force: true });
  }
}

/** Whether a subject can be the name of an image: files' names have a suffix, or a path from here or the root. */
function isName(subject: string): boolean {
  if (/^[./~-]|\.(tar|tgz|gz|zst)$/.test(subject)) return false;
  try {
    parseReference(subject);
    return true;
  } catch (error) {
    if (hasCode(error, 'InvalidImageName')) return false;
    throw error;
  }
}

/** Writes a stream to a file, within the bounds of an image. */
async function keep(stream: Readable, file: string): Promise<void> {
  const budget = createLayerBudget(LAYER_LIMITS);
  await pipeline(
    counted(stream as AsyncIterable<Uint8Array>, budget),
    createWriteStream(file, { flags: 'wx', mode: 0o600 }),
  );
}

async function saveFromBuilder(name: string, file: string): Promise<void> {
  const tried: string[] = [];
  for (const builder of BUILDERS) {
    const program = findProgram(builder.file);
    if (program === null) continue;
    const full = formatReference(parseReference(name));
    const problem = await save(program, builder.words(builder.isFull ? full : name), file);
    if (problem === null) return;
    tried.push(`${builder.file}: ${problem}`);
    rmSync(file, { force: true });
  }
  throw new FairleadError(
    tried.length === 0
      ? `no such file: ${name}, and none of ${[...new Set(BUILDERS.map((one) => one.file))].join(', ')} is installed, which could have an image of this name`
      : `no such file: ${name}, and no program of this machine has an image of this name: ${tried.join('; ')}`,
    {
      op: 'load image',
      code: 'ENOENT',
      object: name,
      hint: 'docker save NAME | fairlead image load -, as the user who has the image; from a registry: fairlead image pull NAME',
    },
  );
}

/** Runs a program that writes an archive; returns why it failed, or null. */
async function save(program: string, words: readonly string[], file: string): Promise<string | null> {
  const child = spawn(program, [...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(0, MAX_ERROR);
  });
  const ended = new Promise<string | null>((resolve) => {
    child.once('error', (error) => resolve(messageOf(error)));
    child.once('close', (code) =>
      resolve(code === 0 ? null : errors.trim().split('\n').at(-1) || `it ended with ${code}`),
    );
  });
  try {
    await keep(child.stdout, file);
  } catch (error) {
    child.kill('SIGKILL');
    await ended;
    throw error;
  }
  return await ended;
}
