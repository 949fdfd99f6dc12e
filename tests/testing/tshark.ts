import { execFile, execFileSync } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);
const MAX_OUTPUT_BYTES = 1 << 28;

/** Returns why a program cannot be run here, or false. In CI it must be. */
export function programMissing(...programs: readonly string[]): string | false {
  for (const program of programs) {
    try {
      execFileSync(program, ['--version'], { stdio: 'ignore' });
    } catch (error) {
      if (process.env['CI']) throw error;
      return `${program} is not installed`;
    }
  }
  return false;
}

/** Returns the values of a field of a packet, one for each layer that has it; [""]: none. */
export type FieldReader<Field extends string> = (field: Field) => readonly string[];

export interface TsharkOptions {
  /** Which packets are read, in tshark's language; default: all. */
  readonly filter?: string;
  /** More options. */
  readonly options?: readonly string[];
}

/** Reads fields of the packets of a file with tshark. Throws if it complains about the file. */
export async function readWithTshark<Field extends string>(
  file: string,
  fields: readonly Field[],
  { filter, options = ['-n'] }: TsharkOptions = {},
): Promise<FieldReader<Field>[]> {
  const format = [
    '-T',
    'fields',
    '-E',
    'separator=/t',
    '-E',
    'occurrence=a',
    '-E',
    `aggregator=${AGGREGATOR}`,
  ];
  const wanted = fields.flatMap((name) => ['-e', name]);
  const chosen = filter === undefined ? [] : ['-Y', filter];
  const { stdout, stderr } = await run('tshark', ['-r', file, ...options, ...chosen, ...format, ...wanted], {
    maxBuffer: MAX_OUTPUT_BYTES,
  });
  const complaints = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('Running as user'));
  if (complaints.length > 0) throw new Error(`tshark says of ${file}: ${complaints.join('\n')}`);
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const cells = line.split('\t');
      return (field) => (cells[fields.indexOf(field)] ?? '').split(AGGREGATOR);
    });
}

const AGGREGATOR = '|';
