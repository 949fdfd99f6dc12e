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
 * Parses a duration in Go's notation ("1h2m3.5s", "-5ms", "0") to milliseconds. Throws Error in the words of Go's
 * time.ParseDuration.
 */
export function parseGoDuration(text: string): number {
  const invalid = () => new Error(`time: invalid duration ${JSON.stringify(text)}`);
  const [, sign = '', body = ''] = /^([-+]?)(.*)$/s.exec(text) ?? [];
  if (body === '0') return 0;
  let rest = body;
  let sum = 0;
  do {
    const amount = /^(?:[0-9]+\.?[0-9]*|\.[0-9]+)/.exec(rest)?.[0];
    if (amount === undefined) throw invalid();
    rest = rest.slice(amount.length);
    const unit = /^[^.0-9]*/.exec(rest)?.[0] ?? '';
    if (unit === '') throw new Error(`time: missing unit in duration ${JSON.stringify(text)}`);
    const size = Object.hasOwn(UNITS_MS, unit) ? UNITS_MS[unit] : undefined;
    if (size === undefined)
      throw new Error(`time: unknown unit ${JSON.stringify(unit)} in duration ${JSON.stringify(text)}`);
    rest = rest.slice(unit.length);
    sum += Number(amount) * size;
  } while (rest !== '');
  return sign === '-' ? -sum : sum;
}
