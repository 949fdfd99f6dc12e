import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readEnd } from '../kernel/bounded-file.ts';
import type { Container } from '../kube/types.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { utf8End } from '../lib/utf8.ts';
import { lastLines } from './container-logs.ts';

/** The file for a container's terminationMessagePath, in its run's folder. */
const FILE = 'termination-log';
const MAX_BYTES = 4096;
/** Upstream's limits of FallbackToLogsOnError. */
const MAX_LOG_LINES = 80;
const MAX_LOG_BYTES = 2048;

/** Creates the empty file for the container's termination message; returns its path. */
export function makeTerminationLog(bundle: string): string {
  const path = join(bundle, FILE);
  writeFileSync(path, '');
  // Writable by any user of the container's processes.
  chmodSync(path, 0o666);
  return path;
}

/**
 * Returns the message of an ended run: the last 4,096 bytes that it wrote (upstream's tail.ReadAtMost) or, after a
 * failure, the end of its log if its policy requests that. Never throws: a message that cannot be read must not hide the end of the run.
 */
export function terminationMessage(
  bundle: string,
  logFile: string,
  { terminationMessagePolicy }: Container,
  exitCode: number,
): string {
  const file = join(bundle, FILE);
  const written = readText(file, () => utf8End(readEnd(file, MAX_BYTES).toString('utf8'), MAX_BYTES));
  if (written !== '') return written;
  if (exitCode === 0 || terminationMessagePolicy !== 'FallbackToLogsOnError') return '';
  return readText(logFile, () => utf8End(lastLines(logFile, MAX_LOG_LINES, MAX_LOG_BYTES), MAX_LOG_BYTES));
}

function readText(path: string, read: () => string): string {
  try {
    return read();
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return '';
    return `Error on reading termination log ${path}: ${messageOf(error)}`;
  }
}
