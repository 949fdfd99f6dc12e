import type { ControllerRevision, KubeObject, PodTemplateSpec, Resource } from '../kube/types.ts';
import { canonical, hashOf } from './canonical.ts';
import { controllerReference } from './ownership.ts';

export const REVISION_LABEL = 'controller-revision-hash';

/**
 * Returns the data of a revision of a DaemonSet or StatefulSet: a patch that restores its template (kubectl rollout
 * undo).
 */
function dataOf(template: PodTemplateSpec | undefined) {
  return { spec: { template: { ...template, $patch: 'replace' } } };
}

export interface History {
  /** The revision of the current template; without uid if it has to be created. */
  readonly current: ControllerRevision;
  readonly isNew: boolean;
  /** The current template equals an older revision, whose number must be raised to this. */
  readonly raiseTo: number | null;
  /** Revisions beyond the limit, oldest first, without those in use. */
  readonly outdated: readonly ControllerRevision[];
}

/** Computes the wanted revisions of a workload. `inUse`: names of revisions that pods still run. Pure. */
export function revisionHistory(
  owner: KubeObject & { readonly spec?: { template?: PodTemplateSpec; revisionHistoryLimit?: number } },
  resource: Resource,
  revisions: readonly ControllerRevision[],
  inUse: ReadonlySet<string>,
  collisions = 0,
): History {
  const template = owner.spec?.template;
  const wanted = canonical(dataOf(template));
  const sorted = [...revisions].sort((a, b) => a.revision - b.revision);
  const found = sorted.filter((revision) => canonical(revision.data) === wanted).at(-1);
  const last = sorted.at(-1)?.revision ?? 0;
  const limit = owner.spec?.revisionHistoryLimit ?? 10;
  const idle = sorted.filter((revision) => revision !== found && !inUse.has(revision.metadata?.name ?? ''));
  const outdated = idle.slice(0, Math.max(0, idle.length - limit));
  if (found) {
    return { current: found, isNew: false, raiseTo: found.revision < last ? last + 1 : null, outdated };
  }
  const hash = hashOf(template, collisions);
  const { name = '', namespace, annotations } = owner.metadata ?? {};
  const cause = annotations?.['kubernetes.io/change-cause'];
  const current: ControllerRevision = {
    metadata: {
      name: `${name}-${hash}`,
      ...(namespace ? { namespace } : {}),
      labels: { ...template?.metadata?.labels, [REVISION_LABEL]: hash },
      ...(cause ? { annotations: { 'kubernetes.io/change-cause': cause } } : {}),
      ownerReferences: [controllerReference(owner, resource)],
    },
    // Clients compare its bytes with a template's in Go's order of map keys (kubectl rollout undo).
    data: JSON.parse(wanted),
    revision: last + 1,
  };
  return { current, isNew: true, raiseTo: null, outdated };
}

/** Returns the template of a revision. */
export function templateOf(revision: ControllerRevision): PodTemplateSpec | undefined {
  const data = revision.data as { spec?: { template?: PodTemplateSpec & { $patch?: string } } } | undefined;
  if (!data?.spec?.template) return undefined;
  const { $patch: _patch, ...template } = data.spec.template;
  return template;
}
