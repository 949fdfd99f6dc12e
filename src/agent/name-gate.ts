import { type AnswerHold, answeredAddresses, type HeldClient, withMaxTtl } from '../dns/answer-hold.ts';
import type { Answer, Question } from '../dns/message.ts';
import { sourceAddress } from '../kernel/datagram-server.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { isolating } from '../policy/allows.ts';
import type { LearnedNames, Learning, NameBound } from '../policy/learned-names.ts';
import type { NameEnforcement } from '../policy/name-enforcement.ts';
import { indexNames, type NameGroup, plainName } from '../policy/name-group.ts';
import { MAX_LIFETIME_MS } from '../policy/name-limits.ts';
import { namesOf } from '../policy/policy-references.ts';
import type { PolicyTable } from '../policy/policy-table.ts';

/** How long an answer waits while the table of policies is written: resolvers ask again after some seconds. */
const MAX_WAIT_MS = 1000;
/** How long an answer of a new agent waits until it knows the policies. */
const MAX_START_MS = 2000;
/** Clients whose rules are remembered; those without count, too. */
const MAX_CLIENTS = 16_384;
/** Addresses of an answer that cost as much as a query. */
const ADDRESSES_OF_A_QUERY = 20;

/** Why an answer left without allowing all of its addresses. */
export type NameRefusal = NameBound | 'address inside the cluster' | 'not programmed';

export interface NameGateOptions {
  /** The name of this node. */
  readonly node: string;
  readonly policies: PolicyTable;
  readonly learned: LearnedNames;
  readonly names: Pick<NameEnforcement, 'isReplacing' | 'write'>;
  /** Resolves when the kernel has the policies that are known at the time of the call. */
  readonly programmed: () => Promise<void>;
  readonly clock: Clock;
  readonly onRefused: (pod: string, name: string, refusal: NameRefusal, addresses: readonly string[]) => void;
}

/** Holds the answers to pods whose policies have rules with names until the kernel allows the addresses. */
export interface NameGate extends AnswerHold {
  /** Forgets which clients have such rules: pods or policies have changed. */
  reset(): void;
}

export function createNameGate(options: NameGateOptions): NameGate {
  const { node, policies, learned, names, programmed, clock, onRefused } = options;
  const clients = new Map<string | number, HeldClient | null>();

  function clientAt(source: string | number): { client: HeldClient | null; isOwn: boolean } {
    const pod = policies.podAt(sourceAddress(source));
    if (!pod) return { client: null, isOwn: true };
    const groups = isolating(policies, pod, 'egress').flatMap((policy) => namesOf(policy));
    const isOwn = pod.node === node;
    if (groups.length === 0) return { client: null, isOwn };
    return { client: isOwn ? ownClient(pod.key) : foreignClient(groups), isOwn };
  }

  const ownClient = (key: string): HeldClient => ({
    beforeAnswer(question, answer, charge) {
      const name = plainName(question.name);
      if (name === null || !learned.wants(key, name)) return answer;
      const { addresses, ttl } = answeredAddresses(question, answer);
      if (addresses.length === 0) return answer;
      const more = Math.floor(addresses.length / ADDRESSES_OF_A_QUERY);
      if (more > 0) charge(more);
      const learning = learned.learn(key, name, addresses, ttl);
      const leaving = withMaxTtl(answer, MAX_LIFETIME_MS / 1000);
      const { bound, inside } = learning;
      if (bound !== null) onRefused(key, name, bound, []);
      if (inside.length > 0) onRefused(key, name, 'address inside the cluster', inside);
      if (learning.writes.length === 0) {
        learning.confirm();
        return leaving;
      }
      if (names.write(learning) && !names.isReplacing) return leaving;
      return written(key, name, learning).then(() => leaving);
    },
  });

  /** Waits until the kernel has the sets, for a bounded time. */
  async function written(key: string, name: string, learning: Learning): Promise<void> {
    const late = new AbortController();
    await Promise.race([programmed().catch(() => {}), pause(clock, MAX_WAIT_MS, late.signal)]);
    late.abort();
    if (names.write(learning)) return;
    const addresses = learning.writes.map(({ address }) => address);
    onRefused(key, name, 'not programmed', addresses);
  }

  return {
    clientOf(source) {
      if (!policies.usesNames) return undefined;
      const known = clients.get(source);
      if (known !== undefined) return known ?? undefined;
      const { client, isOwn } = clientAt(source);
      // The labels of other nodes' pods change without notice.
      if (isOwn) {
        if (clients.size >= MAX_CLIENTS) clients.clear();
        clients.set(source, client);
      }
      return client ?? undefined;
    },
    reset: () => clients.clear(),
  };
}

/**
 * Holds answers while a new agent reads the policies, if those of the agent before had names: the rules of that one are still in
 * the kernel. `started`: resolves when the policies are enforced.
 */
export function holdUntilStarted(gate: AnswerHold, started: Promise<unknown>, clock: Clock): AnswerHold {
  let isStarted = false;
  const done = started.then(
    () => {},
    () => {},
  );
  done.then(() => {
    isStarted = true;
  });
  return {
    clientOf(source) {
      if (isStarted) return gate.clientOf(source);
      return {
        beforeAnswer(question, answer, charge) {
          if (answeredAddresses(question, answer).addresses.length === 0) return answer;
          const late = new AbortController();
          return Promise.race([done, pause(clock, MAX_START_MS, late.signal)]).then(() => {
            late.abort();
            return gate.clientOf(source)?.beforeAnswer(question, answer, charge) ?? answer;
          });
        },
      };
    },
  };
}

/**
 * A pod of another node, which asks here because its own node's server does not run, or because its resolver asks several servers
 * at once: its node would not know the addresses. Without an answer, the resolver asks its own node's server again.
 */
const foreignClient = (
  groups: readonly NameGroup[],
  find = indexNames(groups.map((group) => [group, true])),
): HeldClient => ({
  beforeAnswer(question: Question, answer: Answer) {
    const name = plainName(question.name);
    const isNamed = name !== null && find(name).length > 0;
    return isNamed && answeredAddresses(question, answer).addresses.length > 0 ? null : answer;
  },
});
