const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const DECIMAL: Readonly<Record<string, number>> = {
  n: -9,
  u: -6,
  m: -3,
  '': 0,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};
const SUFFIXES = Object.fromEntries(Object.entries(DECIMAL).map(([suffix, power]) => [power, suffix]));

/**
 * Formats the canonical form of a quantity ("0.5" is "500m", "1024Mi" is "1Gi", 1.5 is "1500m"), as
 * k8s.io/apimachinery/pkg/api/resource: without a fraction, with the largest suffix that allows it; preserves binary,
 * decimal and exponent notation. Returns null if the text is not a quantity.
 */
export function canonicalQuantity(value: string | number): string | null {
  const match = /^([+-]?)([0-9]*)(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$/.exec(
    String(value),
  );
  if (!match) return null;
  const [, sign = '', whole = '', fraction = '', suffix = ''] = match;
  if (whole === '' && fraction === '') return null;
  const digits = BigInt(`${whole}${fraction}` || '0');
  if (digits === 0n) return '0';
  const minus = sign === '-' ? '-' : '';
  const binary = BINARY.indexOf(suffix);
  if (binary > 0) {
    const scale = 10n ** BigInt(fraction.length);
    const bytes = digits * 1024n ** BigInt(binary);
    if (bytes % scale !== 0n) return minus + decimal(bytes * 1000n, scale, -3, false);
    return minus + binaryText(bytes / scale);
  }
  const exponent = /^[eE]/.test(suffix) && suffix.length > 1;
  const power = exponent ? Number(suffix.slice(1)) : (DECIMAL[suffix] ?? 0);
  return minus + decimal(digits, 1n, power - fraction.length, exponent);
}

function binaryText(bytes: bigint): string {
  let amount = bytes;
  let step = 0;
  while (step < BINARY.length - 1 && amount % 1024n === 0n) {
    amount /= 1024n;
    step++;
  }
  return `${amount}${BINARY[step]}`;
}

/** Formats `digits`/`divisor` × 10^`power` without a fraction and with the largest suffix, rounded up to nano. */
function decimal(digits: bigint, divisor: bigint, power: number, exponent: boolean): string {
  let amount = ceil(digits, divisor);
  let at = power;
  if (at < -9) {
    amount = ceil(amount, 10n ** BigInt(-9 - at));
    at = -9;
  }
  while (amount % 10n === 0n && amount !== 0n) {
    amount /= 10n;
    at++;
  }
  // Suffixes are powers of a thousand.
  while (at % 3 !== 0 || at > 18) {
    amount *= 10n;
    at--;
  }
  if (exponent) return at === 0 ? `${amount}` : `${amount}e${at}`;
  return `${amount}${SUFFIXES[at] ?? ''}`;
}

function ceil(amount: bigint, divisor: bigint): bigint {
  return (amount + divisor - 1n) / divisor;
}

/** Parses a quantity in units of 10^-9, rounded up; null if the text is not a quantity. */
export function quantityNano(value: unknown): bigint | null {
  if (typeof value !== 'string' && typeof value !== 'number') return null;
  const match = /^([+-]?)([0-9]*)(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$/.exec(
    String(value),
  );
  if (!match) return null;
  const [, sign = '', whole = '', fraction = '', suffix = ''] = match;
  if (whole === '' && fraction === '') return null;
  const digits = BigInt(`${whole}${fraction}` || '0');
  const binary = BINARY.indexOf(suffix);
  let nano: bigint;
  if (binary > 0) {
    nano = ceil(digits * 1024n ** BigInt(binary) * 10n ** 9n, 10n ** BigInt(fraction.length));
  } else {
    const power = /^[eE].+/.test(suffix) ? Number(suffix.slice(1)) : (DECIMAL[suffix] ?? 0);
    const shift = power - fraction.length + 9;
    nano = shift >= 0 ? digits * 10n ** BigInt(shift) : ceil(digits, 10n ** BigInt(-shift));
  }
  return sign === '-' ? -nano : nano;
}

/** Returns the sum of two quantities in the notation of the second. */
export function addQuantities(a: string, b: string): string {
  const sum = (quantityNano(a) ?? 0n) + (quantityNano(b) ?? 0n);
  const binary = /[KMGTPE]i$/.test(b) && sum % 10n ** 9n === 0n;
  return binary ? binaryText(sum / 10n ** 9n) : (canonicalQuantity(`${sum}n`) ?? b);
}
