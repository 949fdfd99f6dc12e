import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Container } from '../kube/types.ts';
import { hasCode } from '../lib/errors.ts';
import { lastLines } from './container-logs.ts';

/** The file behind a container's terminationMessagePath, in its run's folder. */
const FILE = 'termination-log';
const MOST_LETTERS = 4096;
/** Upstream's limits of FallbackToLogsOnError. */
const MOST_LINES = 80;
const MOST_LOG_LETTERS = 2048;

/** Makes the empty file that the container may write its last words into; returns its path. */
export function makeTerminationLog(bundle: string): string {
  const path = join(bundle, FILE);
  writeFileSync(path, '');
  // Whoever the container runs as writes it.
  chmodSync(path, 0o666);
  return path;
}

/** What an ended run left to say: what it wrote, or the end of its log where its policy wants that after a failure. */
export function terminationMessage(
  bundle: string,
  logFile: string,
  { terminationMessagePolicy }: Container,
  exitCode: number,
): string {
  const written = readText(join(bundle, FILE), (path) => readFileSync(path, 'utf8').slice(0, MOST_LETTERS));
  if (written !== '') return written;
  if (exitCode === 0 || terminationMessagePolicy !== 'FallbackToLogsOnError') return '';
  return readText(logFile, (path) => lastLines(path, MOST_LINES).slice(-MOST_LOG_LETTERS));
}

function readText(path: string, read: (path: string) => string): string {
  try {
    return read(path);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return '';
    throw error;
  }
}
