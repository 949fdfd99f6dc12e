import { createEpoll } from '../../../kernel/epoll.ts';
import { listenTcpIn, localPort, openTcpIn } from '../../../kernel/netns.ts';
import { systemClock } from '../../../lib/clock.ts';
import { silentLogger } from '../../../lib/log.ts';
import { endpoint } from '../../testing/service-map.ts';
import { createBalancer } from '../balancer.ts';
import type { PoolProxy, ProxyOptions } from '../pool-proxy.ts';
import { createTcpProxy } from '../tcp-proxy.ts';

/** Proxies connections to a port of loopback. Returns the proxy and the port of its listener. */
export function proxyLoopback(
  port: number,
  options: Partial<ProxyOptions> = {},
): { readonly proxy: PoolProxy; readonly at: number } {
  const balancer = createBalancer({ clock: systemClock, random: () => 0 });
  balancer.configure({ endpoints: [endpoint('127.0.0.1', port)], affinitySeconds: null, failover: false });
  const fd = listenTcpIn(null, '127.0.0.1', 0);
  const proxy = createTcpProxy({
    fd,
    family: 'ipv4',
    balancer,
    open: () => openTcpIn(null, 'ipv4'),
    epoll: createEpoll(),
    clock: systemClock,
    logger: silentLogger,
    ...options,
  });
  return { proxy, at: localPort(fd) };
}
