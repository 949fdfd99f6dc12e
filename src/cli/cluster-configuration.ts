import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parse } from 'yaml';
import { isUrl } from '../cluster/manifests.ts';
import { FairleadError, fileProblem } from '../lib/errors.ts';
import { type OptionTable, suggestion } from './options.ts';

export const API_VERSION = 'fairlead.dev/v1alpha1';
export const KIND = 'Cluster';

/**
 * Reads a cluster's configuration file and returns its fields as words of a command line, which are checked
 * like typed ones. Fields are the options of `up` in camel case ("ipFamily"); `manifests` is a list of
 * files and folders, relative to the configuration file. `structured`: options whose value may be an object.
 * Throws FairleadError that names the field.
 */
export function configurationWords(
  file: string,
  options: OptionTable,
  fields: readonly string[],
  structured: readonly string[] = [],
): string[] {
  const document = readDocument(file);
  const { apiVersion, kind, manifests, ...rest } = document;
  if (apiVersion !== API_VERSION || kind !== KIND)
    throw refusal(file, `must begin with apiVersion: ${API_VERSION} and kind: ${KIND}`);
  const optionOf = new Map(fields.map((name) => [fieldName(name), name]));
  const words = Object.entries(rest).flatMap(([field, value]) => {
    const name = optionOf.get(field);
    const option = name === undefined ? undefined : options[name];
    if (name === undefined || option === undefined) {
      const known = [...optionOf.keys(), 'manifests'];
      throw refusal(file, `unknown field ${field}${suggestion(field, known)}`);
    }
    if (option.kind === 'flag') {
      if (typeof value !== 'boolean') throw refusal(file, `${field} must be true or false`);
      return value ? [`--${name}`] : [];
    }
    if (structured.includes(name) && typeof value === 'object' && value !== null && !Array.isArray(value))
      return [`--${name}=${JSON.stringify(value)}`];
    const texts = Array.isArray(value) ? value : [value];
    if (texts.some((text) => typeof text !== 'string' && typeof text !== 'number'))
      throw refusal(file, `${field} must be a string, a number or a list of them`);
    return option.kind === 'texts'
      ? texts.map((text) => `--${name}=${text}`)
      : [`--${name}=${texts.join(',')}`];
  });
  if (manifests === undefined) return words;
  if (!Array.isArray(manifests) || manifests.some((one) => typeof one !== 'string'))
    throw refusal(file, 'manifests must be a list of files, folders and URLs');
  return [
    ...words,
    ...manifests.map((one: string) => `--file=${isUrl(one) ? one : resolve(dirname(file), one)}`),
  ];
}

function readDocument(file: string): Record<string, unknown> {
  let document: unknown;
  try {
    document = parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw refusal(file, `cannot be read: ${fileProblem(error)}`);
  }
  if (typeof document === 'object' && document !== null && !Array.isArray(document))
    return document as Record<string, unknown>;
  throw refusal(file, 'is not an object');
}

function refusal(file: string, problem: string): FairleadError {
  return new FairleadError(`${file}: ${problem}`, {
    op: 'read the configuration of a cluster',
    code: 'bad-config',
    object: file,
    hint: 'examples/fairlead.yaml has every field',
  });
}

/** Returns the field of an option: "ip-family" is ipFamily. */
export const fieldName = (name: string) =>
  name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
