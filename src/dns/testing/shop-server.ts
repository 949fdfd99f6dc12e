/** A name server of the test cluster: sends its parent its port, and then each warning of its log. */
import { silentLogger } from '../../lib/log.ts';
import { startDnsServer } from '../server.ts';
import { shopZone } from './cluster.ts';

const server = await startDnsServer({
  listeners: [{ address: '127.0.0.1', port: 0 }],
  zone: shopZone(),
  forwarder: null,
  logger: { ...silentLogger, warn: (_fields: object, text: string) => process.send?.(text) },
  podName: (address) => (address === '127.0.0.5' ? 'shop/flood' : null),
  ...(process.env['UNBOUNDED_SHARE'] ? { share: { perSecond: 1e9, burst: 1e9 } } : {}),
});
process.send?.(server.addresses[0]?.port);
