import { networkInterfaces } from 'node:os';
import { openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listRoutes } from '../kernel/rtnetlink/routes.ts';
import { hostCidr, parseCidr } from '../lib/address.ts';
import type { OccupiedNetwork } from './plan.ts';
import { listClusters, readCluster } from './state.ts';

/** Returns networks that a new cluster must not use: this machine's own, and other clusters' wires. */
export function occupiedNetworks(): OccupiedNetwork[] {
  const own = Object.entries(networkInterfaces()).flatMap(([name, addresses]) =>
    (addresses ?? [])
      .filter((one) => !one.internal)
      .flatMap((one) => {
        const cidr = parseCidr(one.cidr ?? '') ?? hostCidr(one.address);
        return cidr ? [{ cidr, by: `address of ${name}` }] : [];
      }),
  );
  const socket = openRouteSocket();
  let routes: OccupiedNetwork[];
  try {
    routes = listRoutes(socket).flatMap((route) => {
      const cidr = parseCidr(route.destination);
      return cidr && cidr.prefix > 0 ? [{ cidr, by: 'route of this machine' }] : [];
    });
  } finally {
    socket.close();
  }
  const others = listClusters().flatMap((name) =>
    (readCluster(name)?.wireCidrs ?? []).flatMap((text) => {
      const cidr = parseCidr(text);
      return cidr ? [{ cidr, by: `cluster ${name}` }] : [];
    }),
  );
  return [...own, ...routes, ...others];
}
