import { setImmediate } from 'node:timers/promises';
import { hasReason } from '../kube/client.ts';
import { announcingNode } from '../kube/load-balancer.ts';
import { type EndpointSlice, keyOf, type Namespace, type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import type { LimitedClients } from '../network/dns-limit.ts';
import { ALLOWED_SOURCES, EXTRA_SOURCES } from '../network/extra-sources.ts';
import { explain } from '../observe/explain.ts';
import { splitSource } from '../observe/explain-forgery.ts';
import type { ExplainRequest, ExplainView, LinkHost } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import { type Fact, type FactIndex, indexFacts, knownFacts } from '../observe/facts.ts';
import type { AgentContext } from './agent-context.ts';
import { badRequest } from './bad-request.ts';
import type { ControlSources } from './control-sources.ts';
import { type IndexedObjects, indexObjects, type ListedObjects } from './explain-objects.ts';
import { NOT_PROXIED } from './informer-transforms.ts';

/** The body of POST /explain. */
export interface ExplainBody extends ExplainRequest {
  /** See ExplainView. */
  readonly hosts: readonly LinkHost[];
  readonly facts: readonly Fact[];
  /** The objects that the agent does not watch; null: it lists them itself. */
  readonly objects?: ListedObjects | null;
  /** The agent may use objects, and held pods, that it listed this many milliseconds ago, at most MAX_OBJECTS_AGE_MS; absent: 0. */
  readonly objectsMaxAgeMs?: number;
}

/** The body of POST /explain of the control socket: questions that share what is known. */
export interface ExplainBatch extends Omit<ExplainBody, keyof ExplainRequest> {
  readonly questions: readonly ExplainRequest[];
}

/** The answer to one question of a batch. */
export type ExplainAnswer =
  | { readonly explanation: Explanation }
  | { readonly error: { readonly message: string; readonly code: string; readonly hint?: string } };

const MAX_OBJECTS_AGE_MS = 5000;
const MAX_QUESTIONS = 64;

/**
 * Explains a flow by this node's tables and the objects in the agent's informers. Throws as `explain` does.
 */
export async function answerExplain(
  context: AgentContext,
  sources: ControlSources,
  body: Partial<ExplainBody>,
): Promise<Explanation> {
  const answerTo = await openQuestions(context, sources, body);
  return await answerTo(body);
}

/** Explains several flows, one after the other. The event loop runs between two: each takes some milliseconds. */
export async function answerExplainBatch(
  context: AgentContext,
  sources: ControlSources,
  body: Partial<ExplainBatch>,
): Promise<{ answers: ExplainAnswer[] }> {
  const { questions } = body;
  if (!Array.isArray(questions) || questions.length > MAX_QUESTIONS)
    throw badRequest(`questions is not a list of at most ${MAX_QUESTIONS}`);
  const answerTo = await openQuestions(context, sources, body);
  const answers: ExplainAnswer[] = [];
  for (const question of questions) {
    if (answers.length > 0) await setImmediate();
    try {
      answers.push({ explanation: await answerTo(question) });
    } catch (error) {
      if (!(error instanceof FairleadError)) throw error;
      const { message, code, hint } = error;
      answers.push({ error: { message, code, ...(hint === undefined ? {} : { hint }) } });
    }
  }
  return { answers };
}

/** Reads what explanations need, and returns a function that explains. */
async function openQuestions(
  context: AgentContext,
  sources: ControlSources,
  {
    hosts = [],
    facts = [],
    objects = null,
    objectsMaxAgeMs,
  }: Partial<Omit<ExplainBody, keyof ExplainRequest>>,
): Promise<(question: Partial<ExplainRequest>) => Promise<Explanation>> {
  const age = Math.min(Number(objectsMaxAgeMs) || 0, MAX_OBJECTS_AGE_MS);
  const listed = objects ? indexObjects(objects) : await sources.listToExplain(age);
  const [held, limited] = await Promise.all([sources.heldPods(age), sources.limitedClients(age)]);
  const [nodes, others] = await Promise.all([sources.followed.list(), listOtherSlices(context)]);
  const slices = [...sources.slices.list(), ...others];
  const known = indexFacts(facts);
  return async ({ from, to, family = null, entry = null }) => {
    if (!from || !to) throw badRequest('from and to are needed');
    const namespaces = await listPermissions(context, from, listed.pods);
    const view = explainView(
      context,
      sources,
      { ...listed, nodes, slices, namespaces, held, limited },
      { hosts, known },
    );
    return explain(view, { from, to, family, entry });
  };
}

/** Lists the namespaces, whose annotations permit additional sources, if the question depends on them. */
async function listPermissions(
  { client }: AgentContext,
  from: string,
  pods: readonly Pod[],
): Promise<readonly Namespace[]> {
  const isRequested = pods.some(({ metadata }) => metadata?.annotations?.[EXTRA_SOURCES] !== undefined);
  if (!isRequested || splitSource(from).source === null) return [];
  try {
    return (await client.list(RESOURCES.namespaces)).items;
  } catch (error) {
    // An agent without policies: it permits no sources either.
    if (hasReason(error, 'Forbidden')) return [];
    throw error;
  }
}

/** Lists the EndpointSlices that an agent without DNS does not watch. */
async function listOtherSlices({ configuration, client }: AgentContext): Promise<EndpointSlice[]> {
  if (configuration.dns) return [];
  const lists = await Promise.all(
    NOT_PROXIED.map((labelSelector) => client.list(RESOURCES.endpointSlices, { labelSelector })),
  );
  // A slice may have both labels.
  const found = new Map(lists.flatMap(({ items }) => items.map((one) => [keyOf(one), one])));
  return [...found.values()];
}

interface ExplainObjects extends IndexedObjects {
  readonly namespaces: readonly Namespace[];
  readonly nodes: readonly Node[];
  readonly slices: readonly EndpointSlice[];
  readonly held: { has(pod: string): boolean };
  readonly limited: LimitedClients;
}

function explainView(
  { configuration }: AgentContext,
  { part, services, policies, egress, limited: dropped }: ControlSources,
  { pods, podsByAddress, nodes, slices, leases, namespaces, held, limited }: ExplainObjects,
  { hosts, known }: Pick<ExplainBody, 'hosts'> & { readonly known: FactIndex },
): ExplainView {
  const here = configuration.nodeName;
  return {
    services: () => services.list(),
    slices: () => slices,
    pods: () => pods,
    podAt: (address) => podsByAddress.get(address) ?? null,
    nodes: () => nodes,
    map: (node) => (node === here ? part.proxy.map : null),
    mode: (node) => (node === here ? part.mode : null),
    locate: (node, frontend, packet) => (node === here ? part.proxy.dataplane.locate(frontend, packet) : []),
    facts: knownFacts(known),
    hosts,
    policies: () => (policies && !policies.isForbidden() ? policies.table : null),
    isHeld: (pod) => held.has(pod),
    isLimited: (client, server) =>
      limited.servers.has(server) && (limited.packets.has(client) || dropped.has(client)),
    permittedSources: (namespace) =>
      namespaces.find(({ metadata }) => metadata?.name === namespace)?.metadata?.annotations?.[
        ALLOWED_SOURCES
      ],
    egress: () => (egress?.state() ? egress.view() : null),
    entryNode: (address) => announcingNode(leases, address),
  };
}
