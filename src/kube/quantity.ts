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

/** Parses a resource.Quantity ("100m", "64Mi", "1e3") as a number; NaN if it is invalid. */
export function parseQuantity(text: string): number {
  const parts = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$/.exec(text.trim());
  const factor = SUFFIXES[parts?.[2] ?? ''];
  return parts && factor !== undefined ? Number(parts[1]) * factor : Number.NaN;
}
