import { familyOf } from '../../lib/address.ts';
import type { NodeNetwork } from '../node-network.ts';
import { POD_BRIDGE } from '../pod-bridge.ts';
import { podMac, podPort } from '../pod-link.ts';
import { atLeast, type CniConfig, type CniVersion } from './specification.ts';

/** Returns the result of an ADD (SPEC.md, "Add Success"), in the format of the configuration's version. */
export function addResult(
  network: Pick<NodeNetwork, 'gateways' | 'mtu' | 'bridgeMac'>,
  config: CniConfig,
  attachment: {
    readonly uid: string;
    readonly ips: readonly string[];
    readonly ifname: string;
    readonly netns: string;
  },
): object {
  const { cniVersion } = config;
  const { uid, ips, ifname, netns } = attachment;
  const [mtu, old] = [
    atLeast(cniVersion, '1.1.0') ? { mtu: network.mtu } : {},
    !atLeast(cniVersion, '1.0.0'),
  ];
  const addresses = ips.map((address, i) => {
    const gateway = network.gateways[i];
    const version = familyOf(address) === 'ipv4' ? '4' : '6';
    return {
      ...(old ? { version } : {}),
      interface: 2,
      address: `${address}/${gateway?.cidr.prefix}`,
      gateway: gateway?.address,
    };
  });
  return {
    cniVersion,
    interfaces: [
      { name: POD_BRIDGE, mac: network.bridgeMac, ...mtu },
      { name: podPort(uid), ...mtu },
      { name: ifname, mac: podMac(uid), sandbox: netns, ...mtu },
    ],
    ips: addresses,
    routes: addresses.map(({ address, gateway }) => ({
      dst: familyOf(address.replace(/\/.*/, '')) === 'ipv4' ? '0.0.0.0/0' : '::/0',
      gw: gateway,
    })),
    dns: config.dns ?? {},
  };
}

/** Returns the result of an ADD of the loopback plugin. `addresses`: "127.0.0.1/8". */
export function loopbackResult(cniVersion: CniVersion, addresses: readonly string[], netns: string): object {
  const old = !atLeast(cniVersion, '1.0.0');
  return {
    cniVersion,
    interfaces: [{ name: 'lo', mac: '00:00:00:00:00:00', sandbox: netns }],
    ips: addresses.map((address) => ({
      ...(old ? { version: address.includes(':') ? '6' : '4' } : {}),
      interface: 0,
      address,
    })),
    dns: {},
  };
}

/** Returns the addresses of the container's interface in an earlier result. */
export function addressesOf(prevResult: unknown, ifname: string): string[] {
  const { interfaces = [], ips = [] } = (prevResult ?? {}) as {
    interfaces?: { name?: string; sandbox?: string }[];
    ips?: { address?: string; interface?: number }[];
  };
  return ips
    .filter(({ interface: at }) => {
      const device = at === undefined ? undefined : interfaces[at];
      return device === undefined || (device.name === ifname && (device.sandbox ?? '') !== '');
    })
    .flatMap(({ address }) => (address ? [address.replace(/\/.*/, '')] : []));
}
