import type { LinkSize } from '../agent/link-sizes.ts';
import { TUNNEL_OVERHEAD } from '../network/tunnel-device.ts';
import { type Problem, problem } from './problem.ts';

/** The devices of a node; null: its agent is too old to tell. */
export interface NodeLinks {
  readonly node: string;
  readonly links: readonly LinkSize[];
}

/** The bytes that VXLAN adds to a packet at least: over IPv6 they are more. */
const TUNNEL_BYTES = TUNNEL_OVERHEAD.ipv4;

/**
 * Compares the sizes of packets (MTUs) that the devices between pods of different nodes pass, and describes the smaller ones:
 * connections through them open, and stop at the first full packet if no ICMP error tells the sender.
 */
export function sizeProblems(nodes: readonly NodeLinks[]): Problem[] {
  const wanted = mostCommon(nodes.flatMap(({ links }) => mtusOf(links, 'uplink')));
  if (wanted === null) return [];
  return nodes.flatMap(({ node, links }) => [
    ...links
      .filter(({ role, mtu }) => (role === 'uplink' || role === 'wire') && mtu !== wanted)
      .filter(({ role, mtu }) => role === 'uplink' || mtu < wanted)
      .map((link) => differs(node, link, wanted)),
    ...withinNode(node, links),
  ]);
}

const mtusOf = (links: readonly LinkSize[], role: LinkSize['role']): number[] =>
  links.filter((one) => one.role === role).map(({ mtu }) => mtu);

function differs(node: string, { role, device, mtu }: LinkSize, wanted: number): Problem {
  const [what, place] =
    role === 'uplink'
      ? [`its uplink ${device}`, `on ${node}`]
      : [`its port ${device} of the network between nodes`, 'in its namespace'];
  return sizeProblem(
    node,
    device,
    `${what} has the MTU ${mtu}, those of other nodes have ${wanted}: larger packets between them may be lost; give all the same MTU: ip link set dev ${device} mtu ${wanted} (${place})`,
  );
}

/** Packets that leave pods and tunnels have to fit into the uplink. */
function withinNode(node: string, links: readonly LinkSize[]): Problem[] {
  const [uplink] = mtusOf(links, 'uplink');
  if (uplink === undefined) return [];
  const tunnel = links.find(({ role }) => role === 'tunnel');
  const room = tunnel ? Math.min(tunnel.mtu, uplink - TUNNEL_BYTES) : uplink;
  const pods = links.filter(({ role, mtu }) => role === 'pod' && mtu > room);
  const [largest] = pods;
  return [
    ...(tunnel && tunnel.mtu > uplink - TUNNEL_BYTES
      ? [
          sizeProblem(
            node,
            tunnel.device,
            `its tunnel ${tunnel.device} has the MTU ${tunnel.mtu}, but only ${uplink - TUNNEL_BYTES} bytes fit through its uplink: ip link set dev ${tunnel.device} mtu ${uplink - TUNNEL_BYTES}`,
          ),
        ]
      : []),
    ...(largest
      ? [
          sizeProblem(
            node,
            largest.device,
            `${pods.length} of its pods' devices have a larger MTU (${largest.mtu}) than fits between nodes (${room}), since they are older than that limit; raise the MTU of the uplink, or recreate the pods`,
          ),
        ]
      : []),
  ];
}

const sizeProblem = (node: string, device: string, text: string): Problem =>
  problem('mtu-differs', `Node ${node}`, `${node}: ${text}`, `device ${device}`);

/** Returns the most frequent number, of equally frequent ones the largest; null: there are none. */
function mostCommon(numbers: readonly number[]): number | null {
  const counts = [...Map.groupBy(numbers, (one) => one)].map(([value, { length }]) => ({ value, length }));
  return counts.toSorted((a, b) => b.length - a.length || b.value - a.value)[0]?.value ?? null;
}
