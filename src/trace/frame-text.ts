import { IP_PROTOCOL, type Packet, TCP_FLAG } from '../kernel/packet.ts';
import { hostPort } from '../lib/address.ts';

const FLAG_NAMES = Object.entries(TCP_FLAG).map(([name, bit]) => [name.toUpperCase(), bit] as const);
const ETHERTYPES: Readonly<Record<number, string>> = { 2054: 'ARP', 35020: 'LLDP' };

/** Describes a frame in one line: "10.244.1.2:4000 → 10.96.0.1:80 TCP SYN". Null packet: not IP, or unreadable. */
export function frameText(packet: Packet | null, frame: Uint8Array): string {
  if (!packet) {
    const type = ((frame[12] ?? 0) << 8) | (frame[13] ?? 0);
    return ETHERTYPES[type] ?? `EtherType 0x${type.toString(16).padStart(4, '0')}`;
  }
  const { source, destination, ports, tunnel } = packet;
  const end = (ip: string, port: number | undefined) => (port === undefined ? ip : hostPort({ ip, port }));
  const ends = `${end(source, ports?.source)} → ${end(destination, ports?.destination)}`;
  return `${ends} ${protocolText(packet)}${tunnel ? ` (VXLAN ${tunnel.source} → ${tunnel.destination})` : ''}`;
}

function protocolText({ protocol, tcp, icmp, payload }: Packet): string {
  const bytes = payload.length > 0 ? `, ${payload.length} bytes` : '';
  if (tcp) {
    const flags = FLAG_NAMES.flatMap(([name, bit]) => (tcp.flags & bit ? name : []));
    return `TCP ${flags.join(' ')}${bytes}`;
  }
  if (icmp) return `ICMP ${icmp.text}`;
  switch (protocol) {
    case IP_PROTOCOL.udp:
      return `UDP${bytes}`;
    case IP_PROTOCOL.icmp:
      return 'ICMP';
    case IP_PROTOCOL.icmp6:
      return `ICMPv6 type ${payload[0] ?? 0}`;
    default:
      return `IP protocol ${protocol}`;
  }
}
