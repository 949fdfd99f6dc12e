import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Container } from '../kube/types.ts';
import { hasCode } from '../lib/errors.ts';
import { lastLines } from './container-logs.ts';

/** The file for a container's terminationMessagePath, in its run's folder. */
const FILE = 'termination-log';
const MAX_CHARACTERS = 4096;
/** Upstream's limits of FallbackToLogsOnError. */
const MAX_LOG_LINES = 80;
const MAX_LOG_CHARACTERS = 2048;

/** Creates the empty file for the container's termination message; returns its path. */
export function makeTerminationLog(bundle: string): string {
  const path = join(bundle, FILE);
  writeFileSync(path, '');
  // Writable by any user of the container's processes.
  chmodSync(path, 0o666);
  return path;
}

/**
 * Returns the message of an ended run: the text that it wrote or, after a failure, the end of its log if its policy
 * requests that.
 */
export function terminationMessage(
  bundle: string,
  logFile: string,
  { terminationMessagePolicy }: Container,
  exitCode: number,
): string {
  const written = readText(join(bundle, FILE), (path) => readFileSync(path, 'utf8').slice(0, MAX_CHARACTERS));
  if (written !== '') return written;
  if (exitCode === 0 || terminationMessagePolicy !== 'FallbackToLogsOnError') return '';
  return readText(logFile, (path) => lastLines(path, MAX_LOG_LINES).slice(-MAX_LOG_CHARACTERS));
}

function readText(path: string, read: (path: string) => string): string {
  try {
    return read(path);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return '';
    throw error;
  }
}
