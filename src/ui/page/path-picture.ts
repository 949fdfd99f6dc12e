import type { TracedFlow } from '../../cluster/trace-flow.ts';
import type { Leg } from '../../trace/hops.ts';
import { legTitle } from '../../trace/leg-title.ts';
import { createDrawing, type Drawing, kindOf, type Picture } from './path-drawing.ts';
import { drawProxied, findProxy } from './proxied-path.ts';

/** In a question to a name server, and its answer. */
const DNS_TITLES = { datagram: 'DNS query', answer: 'DNS answer' } as const;

/** Draws the path of a traced packet from the devices that it passed. `lookup`: of this question before it; null: of itself. */
export function drawPath(
  { trace, lookups, explanation }: Pick<TracedFlow, 'trace' | 'lookups' | 'explanation'>,
  lookup: number | null = null,
): Picture {
  const legs = (lookup === null ? trace : (lookups[lookup]?.trace ?? null))?.legs ?? [];
  const proxy = lookup === null ? findProxy(explanation.steps, legs) : null;
  const drawing = createDrawing();
  for (const leg of legs) {
    drawing.nextLeg();
    if (proxy !== null) drawProxied(drawing, leg, proxy);
    else drawPlain(drawing, leg, legTitle(leg, false, lookup === null ? {} : DNS_TITLES));
  }
  return drawing.picture();
}

/** Draws a leg that no proxy receives. */
function drawPlain(drawing: Drawing, { way, hops }: Leg, packet: string): void {
  const step = { way, packet, connection: 'client' } as const;
  for (const hop of hops) {
    if (hop.changes.length > 0) drawing.change(step, hop.place, hop.changes);
    drawing.hop(step, hop);
  }
}

/** Whether a rule or key of explain is an object whose text the server reads (src/cluster/object-text.ts). */
export const isKernelObject = (ruleOrKey: string | null): ruleOrKey is string =>
  ruleOrKey !== null && /^(nft|bpf|ipvsadm|ip|fairlead): |^ip6?tables -t /.test(ruleOrKey);

/**
 * Returns the command that prints a kernel object in its own tool's words, on the node of a hop; null: none is known. `object`: in
 * the words of explain ("nft: table ip fairlead, chain prerouting → chain from-pod, map services, element …").
 */
export function rawTextCommand(object: string, place: string, command: string): string | null {
  const exec = `${command} exec node/${place} --`;
  if (kindOf(place) !== 'node') return null;
  const [, family, table] = /^nft: table (\S+) ([^,\s]+)/.exec(object) ?? [];
  if (family && table) {
    const map = /\bmap ([\w-]+)/.exec(object)?.[1];
    const chain = [...object.matchAll(/\bchain ([\w-]+)/g)].at(-1)?.[1];
    if (map) return `${exec} nft list map ${family} ${table} ${map}`;
    return chain
      ? `${exec} nft list chain ${family} ${table} ${chain}`
      : `${exec} nft list table ${family} ${table}`;
  }
  const [, tool, chain] = /^(ip6?tables)\b.*?\b(KUBE-[A-Z0-9-]+|FAIRLEAD-[\w-]+)/.exec(object) ?? [];
  if (tool && chain) return `${exec} ${tool} -t nat -S ${chain}`;
  return null;
}
