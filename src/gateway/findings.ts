/** A problem with an object, for an event on it. */
export interface GatewayFinding {
  readonly severity: 'warning' | 'info';
  /** CamelCase, the reason of the event. */
  readonly reason: string;
  readonly object: { readonly kind: string; readonly namespace: string; readonly name: string };
  /** "FIELD: what is wrong and what to do". */
  readonly message: string;
}

export interface GatewayFindings {
  add(object: GatewayFinding['object'], reason: string, message: string): void;
  result(): readonly GatewayFinding[];
}

/** Each object has at most this many findings: the rest would be events that hide others. */
const MAX_OF_ONE_OBJECT = 16;

export function createFindings(): GatewayFindings {
  const byObject = new Map<string, GatewayFinding[]>();
  return {
    add(object, reason, message) {
      const key = `${object.kind}/${object.namespace}/${object.name}`;
      const known = byObject.get(key);
      if (!known) byObject.set(key, [{ severity: 'warning', reason, object, message }]);
      else if (known.length < MAX_OF_ONE_OBJECT && !known.some((finding) => finding.message === message))
        known.push({ severity: 'warning', reason, object, message });
    },
    result: () => [...byObject.keys()].sort().flatMap((key) => byObject.get(key) ?? []),
  };
}
