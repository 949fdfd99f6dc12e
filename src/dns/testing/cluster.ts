import type { EndpointSliceObject, ServiceObject } from '../objects.ts';
import { createZone, type Zone, type ZoneOptions } from '../zone.ts';

export const service = (name: string, spec: NonNullable<ServiceObject['spec']>): ServiceObject => ({
  metadata: { name, namespace: 'shop' },
  spec,
});

export function slice(
  serviceName: string,
  suffix: string,
  endpoints: NonNullable<EndpointSliceObject['endpoints']>,
  addressType = 'IPv4',
): EndpointSliceObject {
  return {
    metadata: {
      name: `${serviceName}-${suffix}`,
      namespace: 'shop',
      labels: { 'kubernetes.io/service-name': serviceName },
    },
    addressType,
    endpoints,
    ports: [
      { name: 'sql', protocol: 'TCP', port: 5432 },
      { name: '', protocol: 'TCP', port: 9 },
    ],
  };
}

/**
 * Returns a zone with one Service of each kind in namespace "shop"; the tables of the tests refer to it.
 */
export function shopZone(options: ZoneOptions = {}): Zone {
  const zone = createZone({
    reverseCidrs: ['10.96.0.0/16', '10.244.0.0/16', 'fd00:96::/108', 'fd00:244::/48'],
    serverAddresses: ['10.96.0.10', 'fd00:96::a'],
    random: () => 0,
    ...options,
  });
  zone.setService(
    service('web', {
      clusterIP: '10.96.0.1',
      clusterIPs: ['10.96.0.1', 'fd00:96::1'],
      ports: [
        { name: 'http', protocol: 'TCP', port: 80 },
        { name: 'quic', protocol: 'UDP', port: 443 },
      ],
    }),
  );
  zone.setService(service('plain', { clusterIP: '10.96.0.2', ports: [{ port: 8080 }] }));
  zone.setService(service('db', { clusterIP: 'None', ports: [{ name: 'sql', port: 5432 }] }));
  zone.setSlice(
    slice('db', '4', [
      { addresses: ['10.244.1.5'], hostname: 'db-0' },
      { addresses: ['10.244.2.6'], conditions: { ready: true } },
      { addresses: ['10.244.2.7'], hostname: 'db-2', conditions: { ready: false } },
    ]),
  );
  zone.setSlice(
    slice(
      'db',
      '6',
      [{ addresses: ['fd00:244::5'], hostname: 'db-0' }, { addresses: ['fd00:244::6'] }],
      'IPv6',
    ),
  );
  zone.setService(service('peers', { clusterIP: 'None', publishNotReadyAddresses: true }));
  zone.setSlice(
    slice('peers', 'a', [
      { addresses: ['10.244.3.1'], hostname: 'peer-0', conditions: { ready: false } },
      { addresses: ['10.244.3.2'], hostname: 'peer-1' },
    ]),
  );
  zone.setService(service('idle', { clusterIP: 'None' }));
  zone.setSlice(slice('idle', 'a', [{ addresses: ['10.244.4.1'], conditions: { ready: false } }]));
  zone.setService(service('mirror', { type: 'ExternalName', externalName: 'www.Example.com.' }));
  zone.setService(service('alias', { type: 'ExternalName', externalName: 'web.shop.svc.cluster.local' }));
  zone.setService(service('loop', { type: 'ExternalName', externalName: 'loop.shop.svc.cluster.local' }));
  zone.setPod('shop', 'web-1', ['10.244.1.9', 'fd00:244::9']);
  for (const name of ['shop', 'empty']) zone.setNamespace(name);
  zone.setSynced(true);
  return zone;
}
