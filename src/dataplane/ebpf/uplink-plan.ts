import type { NetnsRef } from '../../kernel/netns.ts';
import { listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { familyOf } from '../../lib/address.ts';
import { isNodePortAddress } from '../../service/decide.ts';
import type { Endpoint, Frontend, NodeView, ServiceMap } from '../../service/model.ts';
import { isFrontend } from './plan.ts';

/** RT_SCOPE_UNIVERSE: no link-local addresses, none of loopback. */
const GLOBAL = 0;

/**
 * Whether the programs at the uplink can carry a frontend's traffic from outside: its endpoints are all on this node,
 * and see the client. Not where the client's source decides (source ranges, affinity).
 */
export function isForUplink(frontend: Frontend, { localDetection }: NodeView): boolean {
  const { external } = frontend.routes;
  return (
    frontend.protocol !== 'SCTP' &&
    frontend.allowedSources === null &&
    frontend.affinitySeconds === null &&
    // By which device a pod's packets come in says nothing at the uplink.
    'ipv4' in localDetection &&
    external.action === 'forward' &&
    !external.masquerade &&
    external.pool.endpoints.every(({ local, ip }) => local && familyOf(ip) === frontend.family) &&
    // What cannot be written is nf_tables' to report.
    (frontend.address === null || familyOf(frontend.address) === frontend.family)
  );
}

/** Endpoints of one that `isForUplink`. */
export function uplinkEndpoints({ routes }: Frontend): readonly Endpoint[] {
  return routes.external.action === 'forward' ? routes.external.pool.endpoints : [];
}

/**
 * Whether nf_tables would translate packets that the programs have translated, or has a more exact frontend for some
 * that a node port would take. `addresses`: where node ports answer.
 */
export function isAmbiguous(frontend: Frontend, map: ServiceMap, addresses: ReadonlySet<string>): boolean {
  const { family, protocol, port } = frontend;
  const isTaken = (ip: string, at: number) => map.frontends.has(`${family}/${ip}/${protocol}/${at}`);
  if (frontend.address === null) for (const ip of addresses) if (isTaken(ip, port)) return true;
  return uplinkEndpoints(frontend).some(
    (endpoint) =>
      isFrontend(endpoint, frontend, map) ||
      (addresses.has(endpoint.ip) && map.frontends.has(`${family}/nodeport/${protocol}/${endpoint.port}`)),
  );
}

/** Addresses on which node ports answer to clients outside. */
export function nodePortAddressesOf(node: NodeView, netns: NetnsRef | undefined): Set<string> {
  using socket = openRouteSocket(netns);
  return new Set(
    listAddresses(socket).flatMap(({ address, scope }) =>
      scope === GLOBAL && familyOf(address) !== null && isNodePortAddress(node, address) ? [address] : [],
    ),
  );
}
