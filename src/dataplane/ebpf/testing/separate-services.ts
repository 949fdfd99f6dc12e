import type { IPFamily } from '../../../lib/address.ts';
import type { Frontend } from '../../../service/model.ts';
import { endpoint, frontend } from '../../testing/service-map.ts';

/**
 * Returns a function that makes Services, each with a separate address, so that only the endpoints' numbers can link it to
 * earlier ones.
 */
export function createServices() {
  let next = 1;
  return (
    family: IPFamily,
    protocol: 'TCP' | 'UDP',
    targets: readonly (readonly [string, number])[],
    failover = true,
  ): Frontend => {
    const n = next++;
    const made = frontend({
      kind: 'ClusterIP',
      service: `s${n}`,
      address: family === 'ipv4' ? `10.96.7.${n}` : `fd00:96::7:${n}`,
      port: 80,
      protocol,
      endpoints: targets.map(([ip, port]) => endpoint(ip, port)),
    });
    return { ...made, options: { ...made.options, failover } };
  };
}
