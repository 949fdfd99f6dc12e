import type { Kind } from './kind.ts';
import type { ApiObject } from './object.ts';

/** Fields of events.k8s.io/v1 Event and their names in core/v1. All others have the same name. */
const RENAMED: readonly (readonly [event: string, core: string])[] = [
  ['regarding', 'involvedObject'],
  ['note', 'message'],
  ['reportingController', 'reportingComponent'],
  ['deprecatedSource', 'source'],
  ['deprecatedFirstTimestamp', 'firstTimestamp'],
  ['deprecatedLastTimestamp', 'lastTimestamp'],
  ['deprecatedCount', 'count'],
];

/** Presents core/v1 Events as events.k8s.io/v1 Events (k8s.io/kubernetes pkg/apis/events/v1/conversion.go). */
export function eventView(core: Kind): NonNullable<Kind['view']> {
  return {
    of: core,
    toStorage: (event) => ({ ...renamed(event, RENAMED), apiVersion: 'v1', kind: 'Event' }),
    fromStorage: (event) =>
      renamed(
        event,
        RENAMED.map(([name, coreName]) => [coreName, name]),
      ),
  };
}

function renamed(object: ApiObject, names: readonly (readonly [from: string, to: string])[]): ApiObject {
  const result: ApiObject = { ...object };
  for (const [from, to] of names) {
    if (result[from] === undefined) continue;
    result[to] = result[from];
    delete result[from];
  }
  return result;
}
