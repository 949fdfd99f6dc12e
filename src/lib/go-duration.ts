const UNITS_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3, // U+00B5, the micro sign
  μs: 1e-3, // U+03BC, the Greek letter
  ms: 1,
  s: 1e3,
  m: 60e3,
  h: 3600e3,
};

/**
 * Parses a duration in Go's notation ("1h2m3.5s", "-5ms", "0") to milliseconds; returns the problem with it in the words of
 * Go's time.ParseDuration.
 */
export function parseGoDuration(text: string): number | { readonly problem: string } {
  const shown = JSON.stringify(text);
  const [, sign = '', body = ''] = /^([-+]?)(.*)$/s.exec(text) ?? [];
  if (body === '0') return 0;
  let rest = body;
  let sum = 0;
  do {
    const amount = /^(?:[0-9]+\.?[0-9]*|\.[0-9]+)/.exec(rest)?.[0];
    if (amount === undefined) return { problem: `time: invalid duration ${shown}` };
    rest = rest.slice(amount.length);
    const unit = /^[^.0-9]*/.exec(rest)?.[0] ?? '';
    if (unit === '') return { problem: `time: missing unit in duration ${shown}` };
    const size = Object.hasOwn(UNITS_MS, unit) ? UNITS_MS[unit] : undefined;
    if (size === undefined)
      return { problem: `time: unknown unit ${JSON.stringify(unit)} in duration ${shown}` };
    rest = rest.slice(unit.length);
    sum += Number(amount) * size;
  } while (rest !== '');
  return sign === '-' ? -sum : sum;
}
