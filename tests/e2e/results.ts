import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { SpecResult, SpecState } from './ginkgo-report.ts';
import { notApplicable } from './not-applicable.ts';

/** The results of one group in one mode and IP family. */
export interface ResultSet {
  readonly group: string;
  readonly mode: string;
  readonly family: string;
  /** The version of Kubernetes that the specs belong to. */
  readonly version: string;
  readonly specs: Readonly<Record<string, SavedSpec>>;
}

export interface SavedSpec {
  readonly state: SpecState | 'not run';
  readonly reason?: string;
}

export const RESULTS = join(import.meta.dirname, 'results');

const fileOf = (group: string, mode: string, family: string) =>
  join(RESULTS, `${group}.${mode}.${family}.json`);

/** Replaces the results of the specs that ran and keeps those of the others; `all`: the names of the group's specs. */
export function saveResults(
  set: Omit<ResultSet, 'specs'>,
  ran: readonly SpecResult[],
  all: readonly string[],
): ResultSet {
  const file = fileOf(set.group, set.mode, set.family);
  const before = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as ResultSet).specs : {};
  const specs: Record<string, SavedSpec> = {};
  for (const name of all) specs[name] = { state: 'not run' };
  Object.assign(specs, before);
  for (const { name, state, reason } of ran) specs[name] = reason === '' ? { state } : { state, reason };
  const sorted = Object.fromEntries(Object.entries(specs).sort(([a], [b]) => (a < b ? -1 : 1)));
  const next: ResultSet = { ...set, specs: sorted };
  mkdirSync(RESULTS, { recursive: true });
  writeFileSync(file, `${JSON.stringify(next, null, 1)}\n`);
  return next;
}

/** Reads all results, sorted by file name. */
export function loadResults(): ResultSet[] {
  if (!existsSync(RESULTS)) return [];
  return readdirSync(RESULTS)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name) => JSON.parse(readFileSync(join(RESULTS, name), 'utf8')) as ResultSet);
}

/** Lists the specs of a group that passed in a mode and IP family, or are not applicable there. */
export function finishedSpecs(group: string, mode: string, family: string): string[] {
  const set = loadResults().find((one) => one.group === group && one.mode === mode && one.family === family);
  return Object.entries(set?.specs ?? {}).flatMap(([name, { state, reason = '' }]) =>
    state === 'passed' || notApplicable(name, mode, reason) !== null ? [name] : [],
  );
}

/**
 * Returns a regular expression for one spec name; ginkgo matches it against the names of the suite and the
 * spec.
 */
export const exactly = (name: string) => `${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
