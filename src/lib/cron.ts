import { FairleadError } from './errors.ts';
/** The times of a cron expression. */
export interface CronSchedule {
  /**
   * Returns the first time after `after`; both in milliseconds since 1970. Null: none within five years.
   */
  next(after: number): number | null;
}

interface Field {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly names?: readonly string[];
}

const FIELDS: readonly Field[] = [
  { name: 'minute', min: 0, max: 59 },
  { name: 'hour', min: 0, max: 23 },
  { name: 'day of month', min: 1, max: 31 },
  {
    name: 'month',
    min: 1,
    max: 12,
    names: ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'],
  },
  { name: 'day of week', min: 0, max: 6, names: ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'] },
];
const DESCRIPTORS: Readonly<Record<string, string>> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
};
/** Messages are those of Kubernetes. */
const invalid = (message: string): FairleadError =>
  new FairleadError(message, { op: 'parse cron schedule', code: 'EINVAL' });

const DAY_MS = 86_400_000;
const MAX_DAYS = 5 * 366;

/**
 * Parses a schedule of a CronJob (robfig/cron v3, standard form): five fields with lists, ranges, steps and
 * names, a descriptor such as "@daily", or "@every 1h30m". Times are those of the clocks in `zone`, an IANA
 * name: a time that the clocks skip does not occur, and one that they show twice occurs twice. Throws an
 * Error with the reason.
 */
export function parseCron(text: string, zone = 'UTC'): CronSchedule {
  const expression = text.trim();
  if (expression === '') throw invalid('empty spec string');
  if (expression.startsWith('@every ')) return everyInterval(expression.slice('@every '.length));
  if (expression.startsWith('@') && DESCRIPTORS[expression] === undefined) {
    throw invalid(`unrecognized descriptor: ${expression}`);
  }
  const words = (DESCRIPTORS[expression] ?? expression).split(/\s+/);
  if (words.length !== FIELDS.length) {
    throw invalid(`expected exactly ${FIELDS.length} fields, found ${words.length}: [${words.join(' ')}]`);
  }
  const [minutes, hours, days, months, weekdays] = FIELDS.map((field, i) =>
    parseField(words[i] ?? '', field),
  );
  if (!minutes || !hours || !days || !months || !weekdays) throw invalid(`invalid schedule: ${text}`);
  const offsetAt = zoneOffset(zone);
  const isDay = (day: Date) => {
    if (!months.values.has(day.getUTCMonth() + 1)) return false;
    const [byDate, byWeekday] = [days.values.has(day.getUTCDate()), weekdays.values.has(day.getUTCDay())];
    // As in Vixie cron: if both are restricted, either one is enough.
    return days.any || weekdays.any ? byDate && byWeekday : byDate || byWeekday;
  };
  return {
    next(after) {
      const local = after + offsetAt(after);
      const first = Math.floor(local / DAY_MS) * DAY_MS;
      // Starts with the previous day, since clocks that are set back repeat an hour of it.
      for (let day = first - DAY_MS; day <= first + MAX_DAYS * DAY_MS; day += DAY_MS) {
        if (!isDay(new Date(day))) continue;
        const found = firstOfDay(day, after, hours.values, minutes.values, offsetAt);
        if (found !== null) return found;
      }
      return null;
    },
  };
}

/** Returns true for a time zone that this system knows. */
export function isTimeZone(zone: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: zone });
    return true;
  } catch (error) {
    if (error instanceof RangeError) return false;
    throw error;
  }
}

/** Returns a moment in the local time of a zone (RFC 3339): "2026-03-01T10:00:00+01:00". */
export function zonedTimestamp(time: number, zone: string): string {
  const offset = zoneOffset(zone)(time);
  const text = new Date(time + offset).toISOString().slice(0, 19);
  if (offset === 0) return `${text}Z`;
  const minutes = Math.abs(offset) / 60_000;
  const pad = (value: number) => String(Math.floor(value)).padStart(2, '0');
  return `${text}${offset < 0 ? '-' : '+'}${pad(minutes / 60)}:${pad(minutes % 60)}`;
}

function parseField(text: string, field: Field): { values: Set<number>; any: boolean } {
  const values = new Set<number>();
  let any = false;
  for (const part of text.split(',')) {
    const [range = '', step, ...rest] = part.split('/');
    if (rest.length > 0) throw invalid(`too many slashes: ${part}`);
    const every = step === undefined ? 1 : number(step, part);
    if (every === 0) throw invalid(`step of range should be a positive number: ${part}`);
    let [first, last] = [field.min, field.max];
    if (range === '*' || range === '?') any ||= every === 1;
    else {
      const [from = '', to, ...more] = range.split('-');
      if (more.length > 0) throw invalid(`too many hyphens: ${part}`);
      first = value(from, field);
      // "5/15" is "5-59/15".
      last = to !== undefined ? value(to, field) : step === undefined ? first : field.max;
    }
    if (first < field.min)
      throw invalid(`beginning of range (${first}) below minimum (${field.min}): ${part}`);
    if (last > field.max) throw invalid(`end of range (${last}) above maximum (${field.max}): ${part}`);
    if (first > last) throw invalid(`beginning of range (${first}) beyond end of range (${last}): ${part}`);
    for (let i = first; i <= last; i += every) values.add(i);
  }
  return { values, any };
}

function value(text: string, field: Field): number {
  const index = field.names?.indexOf(text.toLowerCase()) ?? -1;
  return index >= 0 ? index + field.min : number(text, text);
}

function number(text: string, part: string): number {
  if (!/^[0-9]+$/.test(text)) throw invalid(`failed to parse int from ${part}`);
  return Number(text);
}

/** Returns times for intervals such as "1h30m", from whole second to whole second. */
function everyInterval(text: string): CronSchedule {
  const units: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };
  const parts = [...text.matchAll(/([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)/gy)];
  if (parts.length === 0 || parts.map(([part]) => part).join('') !== text) {
    throw invalid(`failed to parse duration @every ${text}`);
  }
  const sum = parts.reduce((total, [, amount, unit]) => total + Number(amount) * (units[unit ?? ''] ?? 0), 0);
  const interval = Math.max(1000, Math.floor(sum / 1000) * 1000);
  return { next: (after) => Math.floor(after / 1000) * 1000 + interval };
}

/** Returns the offset of a zone's clocks from UTC at a moment, in milliseconds. */
function zoneOffset(zone: string): (time: number) => number {
  if (zone === 'UTC' || zone === 'Etc/UTC') return () => 0;
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  return (time) => {
    const parts = Object.fromEntries(
      format.formatToParts(time).map((part) => [part.type, Number(part.value)]),
    );
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(time / 1000) * 1000;
  };
}

/**
 * Returns the first matching time after `after` on the day that begins at `day` by the zone's clocks; null
 * for none.
 */
function firstOfDay(
  day: number,
  after: number,
  hours: ReadonlySet<number>,
  minutes: ReadonlySet<number>,
  offsetAt: (time: number) => number,
): number | null {
  // The offsets on that day: two if the clocks change.
  const offsets = new Set([offsetAt(day - DAY_MS / 2), offsetAt(day + DAY_MS + DAY_MS / 2)]);
  let found: number | null = null;
  for (const offset of offsets) {
    for (const hour of hours) {
      for (const minute of minutes) {
        const time = day + hour * 3_600_000 + minute * 60_000 - offset;
        if (time <= after || (found !== null && time >= found)) continue;
        if (offsets.size === 1 || offsetAt(time) === offset) found = time;
      }
    }
  }
  return found;
}
