import { hostPort } from '../lib/address.ts';
import type { Protocol } from './model.ts';

/** The name of an endpoint in failure detection: "10.1.2.3:80/TCP", "[fd00::1]:80/TCP". */
export type EndpointKey = string;

/** Returns the key of an endpoint; `ip` is canonical text. */
export function endpointKey(ip: string, port: number, protocol: Protocol): EndpointKey {
  return `${hostPort({ ip, port })}/${protocol}`;
}
