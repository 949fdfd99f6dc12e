const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const YEAR = 365 * DAY;

/**
 * Formats a duration in two or three significant figures, as kubectl shows ages: "45s", "5m10s", "3h20m", "2d4h",
 * "1y30d". Up to two seconds in the future count as now, since clocks differ; more is "<invalid>". `ms`: milliseconds.
 */
export function humanDuration(ms: number): string {
  const seconds = Math.trunc(ms / SECOND);
  if (Number.isNaN(seconds) || seconds < -1) return '<invalid>';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  if (ms < 10 * MINUTE) return twoUnits(ms, MINUTE, 'm', SECOND, 's');
  if (ms < 3 * HOUR) return `${Math.floor(ms / MINUTE)}m`;
  if (ms < 8 * HOUR) return twoUnits(ms, HOUR, 'h', MINUTE, 'm');
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)}h`;
  if (ms < 8 * DAY) return twoUnits(ms, DAY, 'd', HOUR, 'h');
  if (ms < 2 * YEAR) return `${Math.floor(ms / DAY)}d`;
  if (ms < 8 * YEAR) return twoUnits(ms, YEAR, 'y', DAY, 'd');
  return `${Math.floor(ms / YEAR)}y`;
}

function twoUnits(ms: number, large: number, largeName: string, small: number, smallName: string): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)}${largeName}${rest === 0 ? '' : `${rest}${smallName}`}`;
}
