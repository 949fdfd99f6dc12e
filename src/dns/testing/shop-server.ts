/** A name server of the test cluster: shop-server.ts SHARE. Sends its parent its port, and then each warning of its log. */
import { silentLogger } from '../../lib/log.ts';
import { startDnsServer } from '../server.ts';
import { shopZone } from './cluster.ts';

const server = await startDnsServer({
  listeners: [{ address: '127.0.0.1', port: 0 }],
  zone: shopZone(),
  forwarder: null,
  logger: { ...silentLogger, warn: (_fields: object, text: string) => process.send?.(text) },
  podName: (address) => (address === '127.0.0.5' ? 'shop/flood' : null),
  share: JSON.parse(process.argv[2] ?? '{}'),
});
process.send?.(server.addresses[0]?.port);
