import { readAtMost } from '../kernel/bounded-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { canonicalAddress } from '../lib/address.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { KeptName } from '../policy/learned-names.ts';

/** Addresses in the file; the kernel keeps the others, too, but without their names. */
const MAX_KEPT = 20_000;
const MAX_BYTES = 16 << 20;

/** Reads what pods of the node got for names before the agent ended; nothing if the file is missing or malformed. */
export function readKeptNames(file: string, logger: Logger): KeptName[] {
  try {
    const { bytes, isCut } = readAtMost(file, MAX_BYTES);
    const lines = isCut ? [] : bytes.toString('utf8').split('\n');
    return lines.flatMap((line) => readLine(line) ?? []).slice(0, MAX_KEPT);
  } catch (error) {
    if (!hasCode(error, 'ENOENT'))
      logger.warn({ err: error, file }, `the names of policies are learned again: ${messageOf(error)}`);
    return [];
  }
}

/** Writes the file. On a full disk it keeps what it had. */
export function writeKeptNames(file: string, names: readonly KeptName[], logger: Logger): void {
  try {
    const lines = names.slice(0, MAX_KEPT).map((one) => JSON.stringify(one));
    replaceFile(file, `${lines.join('\n')}\n`);
  } catch (error) {
    logger.warn(
      { err: error, file },
      `cannot keep the names of policies for the next start: ${messageOf(error)}`,
    );
  }
}

function readLine(line: string): KeptName | null {
  if (line === '') return null;
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const { pod, podAddresses, address, names, until } = value as Partial<Record<keyof KeptName, unknown>>;
  const isText = (one: unknown): one is string => typeof one === 'string';
  if (!isText(pod) || !isText(address) || typeof until !== 'number') return null;
  if (!Array.isArray(podAddresses) || !podAddresses.every(isText)) return null;
  if (!Array.isArray(names) || !names.every(isText)) return null;
  return canonicalAddress(address) === address ? { pod, podAddresses, address, names, until } : null;
}
