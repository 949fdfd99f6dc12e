import { hostPort, type SocketAddress } from '../../lib/address.ts';
import type { Frontend } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { frontendKeyText } from './frontend-keys.ts';

/** The number of endpoints that a step lists. */
const MAX_NAMED = 8;

/** Returns the step that enforces a frontend's source ranges, if it has any; `at` names the table. */
export function sourceRangeSteps(frontend: Frontend, at: (what: string) => string): KernelStep[] {
  const { allowedSources } = frontend;
  if (!allowedSources) return [];
  const ranges = allowedSources.map(({ text }) => text).join(', ');
  return [
    {
      object: at(
        `set allowed-sources, elements ${frontendKeyText(frontend)} . ${ranges === '' ? '(none)' : ranges}`,
      ),
      effect: 'other sources are dropped',
    },
  ];
}

/** Returns "10.0.0.1:80, [fd00::1]:80, …". */
export function namedEndpoints(endpoints: readonly SocketAddress[]): string {
  const names = endpoints.slice(0, MAX_NAMED).map(hostPort);
  return `${names.join(', ')}${endpoints.length > MAX_NAMED ? ', …' : ''}`;
}
