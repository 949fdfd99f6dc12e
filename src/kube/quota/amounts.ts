import { ownMember, setOwnMember } from '../../lib/own-member.ts';
import { canonicalQuantity } from '../quantity-text.ts';

/** Amounts of resources by name ("requests.cpu"), as canonical quantities ("500m"). */
export type Amounts = Readonly<Record<string, string>>;

const NANO = 1_000_000_000n;

/** Parses a quantity as billionths of a unit. An invalid quantity counts as 0: validation refuses it elsewhere. */
export function nano(value: unknown): bigint {
  const match = /^([+-]?)([0-9]*)(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$/.exec(
    String(value ?? ''),
  );
  if (!match) return 0n;
  const [, sign = '', whole = '', fraction = '', suffix = ''] = match;
  const digits = BigInt(`${whole}${fraction}` || '0');
  const binary = ['Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'].indexOf(suffix) + 1;
  const decimal = /^[eE]/.test(suffix) && suffix.length > 1 ? Number(suffix.slice(1)) : (POWERS[suffix] ?? 0);
  const scaled = scale(digits * NANO * 1024n ** BigInt(binary), (binary > 0 ? 0 : decimal) - fraction.length);
  return sign === '-' ? -scaled : scaled;
}

const POWERS: Readonly<Record<string, number>> = {
  n: -9,
  u: -6,
  m: -3,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};

function scale(amount: bigint, power: number): bigint {
  if (power >= 0) return amount * 10n ** BigInt(power);
  const divisor = 10n ** BigInt(-power);
  return (amount + divisor - 1n) / divisor;
}

/** Formats billionths of a unit as a canonical quantity, in binary notation if one of `like` has it. */
function quantityText(amount: bigint, ...like: readonly (string | undefined)[]): string {
  const binary = like.find((text) => text !== undefined && text !== '0' && text !== '');
  if (binary?.endsWith('i') && amount % NANO === 0n && amount > 0n) {
    let units = amount / NANO;
    let step = 0;
    const suffixes = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
    while (step < 6 && units % 1024n === 0n) {
      units /= 1024n;
      step++;
    }
    return `${units}${suffixes[step]}`;
  }
  const text = canonicalQuantity(`${amount < 0n ? -amount : amount}n`) ?? '0';
  return amount < 0n ? `-${text}` : text;
}

/** Returns the sum of both, resource by resource. */
export function addAmounts(a: Amounts, b: Amounts): Amounts {
  const sum: Record<string, string> = { ...a };
  for (const [name, amount] of Object.entries(b)) {
    const own = ownMember(sum, name);
    setOwnMember(sum, name, quantityText(nano(own) + nano(amount), own, amount));
  }
  return sum;
}

/** Returns `a` minus `b`, resource by resource. */
export function subtractAmounts(a: Amounts, b: Amounts): Amounts {
  const rest: Record<string, string> = { ...a };
  for (const [name, amount] of Object.entries(b)) {
    const own = ownMember(rest, name);
    setOwnMember(rest, name, quantityText(nano(own) - nano(amount), own, amount));
  }
  return rest;
}

/** Returns the larger of both, resource by resource. */
export function maxAmounts(a: Amounts, b: Amounts): Amounts {
  const larger: Record<string, string> = { ...a };
  for (const [name, amount] of Object.entries(b)) {
    const own = ownMember(larger, name);
    if (own === undefined || nano(own) < nano(amount)) setOwnMember(larger, name, amount);
  }
  return larger;
}
