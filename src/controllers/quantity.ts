const SUFFIXES: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  '': 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** A resource quantity ("500m", "128Mi", "1e3") as a number; 0 for text that is none. */
export function parseQuantity(text: string | number | undefined): number {
  if (typeof text === 'number') return text;
  const match = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$/.exec(text ?? '');
  const factor = SUFFIXES[match?.[2] ?? ''];
  const number = Number(match?.[1]);
  return factor === undefined || Number.isNaN(number) ? 0 : number * factor;
}
