import { printTable } from './print-table.ts';
import { type Measurement, PER_SERVICE } from './programming-measurement.ts';

/**
 * The times of the prototype of the nftables design (kernel 6.18, two cores): encoding and kernel,
 * milliseconds.
 */
const PROTOTYPE: Readonly<Record<number, string>> = {
  1000: '5 + 7.6 ms cold, 0.01 ms an endpoint, 1.2 MB',
  10000: '33 + 94 ms cold, 0.013 ms an endpoint, 13.3 MB',
};

export const ms = (value: number | null | undefined): string => {
  if (value === null || value === undefined) return '';
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(3);
};
const mb = (value: number | null): string => (value === null ? '' : (value / 2 ** 20).toFixed(0));
const ratio = (value: number | undefined, base: number | undefined): string =>
  value === undefined || !base ? '' : `${(value / base).toPrecision(3).replace(/\.0+$/, '')}x`;

/** Prints one row per subject, by its title; ratios are to Fairlead's nftables mode. */
export function printMeasurements(
  services: number,
  results: ReadonlyMap<string, Measurement>,
  titles: (subject: string) => string,
): void {
  const base = results.get('nftables');
  console.log(`\n${services} Services x ${PER_SERVICE} endpoints, IPv4; milliseconds`);
  const header = [
    '',
    'compile',
    'first',
    'encode',
    'kernel',
    'cold',
    '',
    'of it CPU',
    'again',
    '+1 endpoint',
    '(kernel)',
    '',
    '-1 endpoint',
    '+1 Service',
    '(kernel)',
    '-1 Service',
    'verify',
    'RSS MB',
    'heap MB',
    'kernel MB',
  ];
  const rows = [...results].map(([subject, m]) => [
    titles(subject),
    ms(m.compile),
    ms(m.first?.total),
    ms(m.cold.encode),
    ms(m.cold.kernel),
    ms(m.cold.total),
    ratio(m.cold.total, base?.cold.total),
    ms(m.cold.processor),
    ms(m.again?.total),
    ms(m.endpointAdded?.total),
    ms(m.endpointAdded?.kernel),
    ratio(m.endpointAdded?.total, base?.endpointAdded?.total),
    ms(m.endpointRemoved?.total),
    ms(m.serviceAdded?.total),
    ms(m.serviceAdded?.kernel),
    ms(m.serviceRemoved?.total),
    ms(m.verify),
    mb(m.rss),
    mb(m.heap),
    mb(m.kernelMemory),
  ]);
  printTable([header, ...rows]);
  const prototype = PROTOTYPE[services];
  if (prototype) console.log(`the design’s prototype, on kernel 6.18: encode + kernel ${prototype}`);
}
