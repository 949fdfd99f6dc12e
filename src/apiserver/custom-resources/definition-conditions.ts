import type { ApiObject } from '../object.ts';
import { type Condition, type DefinitionNames, specOf, statusOf } from './definition.ts';

/**
 * Decides which names a definition receives, and whether it is served. A name that another definition of the group
 * already has is not accepted; the definition is established when all names are accepted. Source:
 * apiextensions-apiserver pkg/controller/status/naming_controller.go and pkg/controller/establish.
 */
export function definitionConditions(
  definition: ApiObject,
  others: readonly ApiObject[],
  now: Date,
): { readonly conditions: Condition[]; readonly acceptedNames: DefinitionNames } {
  const { group, names } = specOf(definition);
  const taken = new Set<string>();
  const usedKinds = new Set<string>();
  for (const other of others) {
    if (other.metadata.name === definition.metadata.name || specOf(other).group !== group) continue;
    const accepted = statusOf(other).acceptedNames;
    if (!accepted) continue;
    for (const name of [accepted.plural, accepted.singular, ...(accepted.shortNames ?? [])]) {
      if (name) taken.add(name);
    }
    for (const kind of [accepted.kind, accepted.listKind]) if (kind) usedKinds.add(kind);
  }
  const before = statusOf(definition).acceptedNames;
  const conflict = (reason: string, name: string) => ({
    reason,
    message: `${JSON.stringify(name)} is already in use`,
  });
  const accepted: Record<string, unknown> = { categories: names.categories };
  let problem: { reason: string; message: string } | null = null;
  const accept = (field: keyof DefinitionNames, reason: string, used: ReadonlySet<string>) => {
    const value = names[field];
    const list = Array.isArray(value) ? (value as string[]) : value === undefined ? [] : [value as string];
    const clash = list.find((name) => used.has(name));
    if (clash === undefined) accepted[field] = value;
    else {
      // The last conflict is reported, as upstream does.
      problem = conflict(reason, clash);
      accepted[field] = before?.[field];
    }
  };
  accept('plural', 'PluralConflict', taken);
  accept('singular', 'SingularConflict', taken);
  accept('shortNames', 'ShortNamesConflict', taken);
  accept('kind', 'KindConflict', usedKinds);
  accept('listKind', 'ListKindConflict', usedKinds);

  const clash = problem as { reason: string; message: string } | null;
  const isEstablished =
    clash === null ||
    (statusOf(definition).conditions?.some(
      ({ type, status }) => type === 'Established' && status === 'True',
    ) ??
      false);
  const wanted: Condition[] = [
    clash
      ? { type: 'NamesAccepted', status: 'False', ...clash }
      : { type: 'NamesAccepted', status: 'True', reason: 'NoConflicts', message: 'no conflicts found' },
    isEstablished
      ? {
          type: 'Established',
          status: 'True',
          reason: 'InitialNamesAccepted',
          message: 'the initial names have been accepted',
        }
      : {
          type: 'Established',
          status: 'False',
          reason: 'NotAccepted',
          message: 'not all names are accepted',
        },
  ];
  const old = statusOf(definition).conditions ?? [];
  const merged = wanted.map((condition) => {
    const same = old.find((one) => one.type === condition.type);
    const since =
      same?.status === condition.status && same.lastTransitionTime
        ? same.lastTransitionTime
        : now.toISOString().replace(/\.\d+Z$/, 'Z');
    return { ...condition, lastTransitionTime: since };
  });
  const rest = old.filter((one) => !wanted.some((condition) => condition.type === one.type));
  return {
    conditions: [...merged, ...rest],
    acceptedNames: JSON.parse(JSON.stringify(accepted)) as DefinitionNames,
  };
}
