import type { EventRecorder } from '../kube/events.ts';
import type { MissingRule } from '../kube/missing-rule.ts';
import { type Node, RESOURCES, type Resource } from '../kube/types.ts';

export interface MissingRulesOptions {
  readonly events: EventRecorder;
  /** This machine's Node, as far as it is known. */
  readonly node: () => Node;
}

/** Kinds that the API server forbids this agent to list or watch: reported in events of its Node, and in its health. */
export interface MissingRules {
  /** Records the rule that the agent lacks for a resource; null: it has been added. */
  set(resource: Resource, rule: MissingRule | null): void;
  /** Returns what is missing, for the health of the agent; null: nothing. */
  problem(): string | null;
}

export function createMissingRules({ events, node }: MissingRulesOptions): MissingRules {
  const missing = new Map<string, MissingRule>();
  return {
    set(resource, rule) {
      const key = `${resource.group}/${resource.plural}`;
      const before = missing.get(key);
      if (rule) {
        missing.set(key, rule);
        events.event(node(), 'Warning', 'MissingPermission', rule.message, RESOURCES.nodes);
      } else if (before) {
        missing.delete(key);
        const message = `allowed to list and watch ${before.resource} now`;
        events.event(node(), 'Normal', 'PermissionGranted', message, RESOURCES.nodes);
      }
    },
    problem: () =>
      missing.size === 0 ? null : [...missing.values()].map(({ message }) => message).join('; '),
  };
}
