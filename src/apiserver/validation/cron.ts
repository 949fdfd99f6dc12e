const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const FIELDS: readonly { readonly low: number; readonly high: number; readonly names: readonly string[] }[] =
  [
    { low: 0, high: 59, names: [] },
    { low: 0, high: 23, names: [] },
    { low: 1, high: 31, names: [] },
    { low: 1, high: 12, names: ['', ...MONTHS] },
    { low: 0, high: 6, names: DAYS },
  ];
const NAMED = ['@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly'];

/**
 * Returns the problem with a schedule in cron's standard form (five fields, or "@daily" and the like); null if it is
 * valid.
 */
export function cronProblem(schedule: string): string | null {
  const text = schedule.replace(/^(CRON_)?TZ=\S+\s+/, '').trim();
  if (text.startsWith('@')) {
    if (NAMED.includes(text)) return null;
    return /^@every ([0-9.]+(ns|us|µs|ms|s|m|h))+$/.test(text) ? null : `unrecognized descriptor: ${text}`;
  }
  const fields = text.split(/\s+/);
  if (fields.length !== FIELDS.length) {
    return `expected exactly 5 fields, found ${fields.length}: [${fields.join(' ')}]`;
  }
  for (const [i, field] of fields.entries()) {
    for (const part of field.split(',')) {
      const problem = partProblem(part, i);
      if (problem) return problem;
    }
  }
  return null;
}

function partProblem(part: string, index: number): string | null {
  const bounds = FIELDS[index] ?? { low: 0, high: 0, names: [] };
  const [range = '', step, ...more] = part.split('/');
  if (more.length > 0) return `too many slashes: ${part}`;
  if (step !== undefined && !/^[1-9][0-9]*$/.test(step)) return `failed to parse int from ${step}`;
  if (range === '*' || range === '?') return null;
  const ends = range.split('-');
  if (ends.length > 2) return `too many hyphens: ${part}`;
  const numbers = ends.map((end) => {
    const name = bounds.names.indexOf(end.toLowerCase());
    return end !== '' && name >= 0 ? name : /^[0-9]+$/.test(end) ? Number(end) : Number.NaN;
  });
  const [first = Number.NaN, last = first] = numbers;
  if (numbers.some(Number.isNaN)) return `failed to parse int from ${range}`;
  if (first < bounds.low) return `beginning of range (${first}) below minimum (${bounds.low}): ${part}`;
  if (last > bounds.high) return `end of range (${last}) above maximum (${bounds.high}): ${part}`;
  return first > last ? `beginning of range (${first}) beyond end of range (${last}): ${part}` : null;
}

/** Returns the problem with the name of a time zone; null if it is known. */
export function timeZoneProblem(zone: string): string | null {
  if (zone === '') return 'timeZone must be nil or non-empty string';
  if (zone.toLowerCase() === 'local')
    return 'timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones';
  try {
    new Intl.DateTimeFormat('en', { timeZone: zone });
    return /^[A-Za-z_]+([-+/A-Za-z0-9_]*)$/.test(zone) ? null : `unknown time zone ${zone}`;
  } catch {
    return `unknown time zone ${zone}`;
  }
}
