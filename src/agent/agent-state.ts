import type { IncomingMessage } from 'node:http';
import type { Mode } from '../dataplane/dataplane.ts';
import { OWN_NETNS } from '../kernel/netns.ts';
import { messageOf } from '../lib/errors.ts';
import { allows, type PolicyPacket, type PolicyVerdict } from '../policy/allows.ts';
import { decide, type Verdict } from '../service/decide.ts';
import type { Packet } from '../service/model.ts';
import type { AgentContext } from './agent-context.ts';
import { badRequest } from './bad-request.ts';
import { MODES } from './configuration.ts';
import { type LinkSize, readLinkSizes } from './link-sizes.ts';
import type { PolicyPart } from './policy-part.ts';
import type { ProxyPart } from './proxy-part.ts';

const MAX_BODY = 1 << 20;

export interface AgentState {
  readonly node: string;
  /** The version of its program. */
  readonly version: string;
  readonly mode: Mode;
  readonly healthy: boolean;
  /** Why it is not healthy; null: it is, or the reason is unknown. */
  readonly problem: string | null;
  readonly frontends: number;
  /** ISO time, or null before the first programming. */
  readonly lastProgrammed: string | null;
  readonly findings: readonly unknown[];
  /** The devices that packets between pods pass; absent: an older program answered. */
  readonly links?: readonly LinkSize[];
}

/** `health`: of the whole agent, whose other parts may have problems while Services are programmed. */
export function agentState(context: AgentContext, part: ProxyPart, health = part.health): AgentState {
  const { map, lastAppliedAt } = part.proxy;
  const whole = health();
  const { healthy } = whole;
  const { problem } = healthy ? part.health() : whole;
  return {
    node: context.configuration.nodeName,
    version: context.version,
    mode: part.mode,
    healthy,
    problem,
    frontends: map?.frontends.size ?? 0,
    lastProgrammed: lastAppliedAt === null ? null : new Date(lastAppliedAt).toISOString(),
    findings: map?.findings ?? [],
    links: readLinkSizes(OWN_NETNS),
  };
}

/** Switches the mode as a request {mode} asks. Throws FairleadError if the node cannot run it. */
export async function switchMode(
  context: AgentContext,
  part: ProxyPart,
  request: unknown,
): Promise<AgentState> {
  const { mode } = (request ?? {}) as { readonly mode?: unknown };
  const wanted = MODES.find((one) => one === mode);
  if (!wanted) throw badRequest(`mode: ${JSON.stringify(mode)} is not one of ${MODES.join(', ')}`);
  await part.switchMode(wanted);
  return agentState(context, part);
}

/** Returns the decisions of this node's forwarding table about {packets}. */
export function decidePackets(part: ProxyPart, request: unknown): { verdicts: Verdict[] } {
  const { packets = [] } = (request ?? {}) as { readonly packets?: readonly Packet[] };
  const { map } = part.proxy;
  if (!map) throw badRequest('nothing is programmed yet');
  return { verdicts: packets.map((packet) => decide(map, packet)) };
}

/** Returns the decisions of this node's copy of the network policies about packets, after the kernel has the known policies. */
export async function decidePolicies(
  policies: PolicyPart | null,
  packets: readonly PolicyPacket[],
): Promise<{ verdicts: PolicyVerdict[] }> {
  if (!policies || policies.isForbidden()) throw badRequest('this agent does not enforce network policies');
  await policies.programmed();
  return { verdicts: packets.map((packet) => allows(policies.table, packet)) };
}

/** Reads the body of a request as JSON. Throws FairleadError if it is not, or longer than `limit` bytes. */
export async function readBody<T>(request: IncomingMessage, limit = MAX_BODY): Promise<T> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += (chunk as Buffer).length;
    if (size > limit) throw badRequest('the request is too large');
    chunks.push(chunk as Buffer);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8')) as T;
  } catch (error) {
    throw badRequest(`the request is not JSON: ${messageOf(error)}`);
  }
}
