import type { EdgeView } from '../view.ts';

/** Kept: `toLocaleString` makes a new one for each number. */
const whole = new Intl.NumberFormat('en');

/** Renders connections per second: "120/s", "0.4/s", "0/s". */
export function rateText(rate: number): string {
  if (rate === 0) return '0/s';
  if (rate >= 9.95) return `${whole.format(Math.round(rate))}/s`;
  return rate < 0.05 ? '<0.1/s' : `${rate.toFixed(1)}/s`;
}

/** Renders milliseconds: "0.34 ms", "12 ms", "1.2 s". */
export function latencyText(ms: number): string {
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 9.95 ? `${Math.round(ms)} ms` : `${ms.toFixed(2)} ms`;
}

/** Renders a number of things: "1 Service", "12 Services". */
export const countText = (count: number, noun: string): string =>
  `${whole.format(count)} ${noun}${count === 1 ? '' : 's'}`;

/** The part of "namespace/name" after the namespace. */
export const baseName = (name: string): string => name.slice(name.indexOf('/') + 1);

/** The namespace of "namespace/name". */
export const namespaceOf = (name: string): string => name.slice(0, Math.max(0, name.indexOf('/')));

/** "default/client → default/web → web-1", without the parts that a connection does not have. */
export const edgeText = ({
  client,
  service,
  endpoint,
}: Pick<EdgeView, 'client' | 'service' | 'endpoint'>): string =>
  [client, service, endpoint !== null && service !== null ? baseName(endpoint) : endpoint]
    .filter((part) => part !== null)
    .join(' → ');
