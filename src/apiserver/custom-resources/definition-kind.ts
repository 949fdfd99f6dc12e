import { defineKind } from '../kind.ts';
import { CLEANUP_FINALIZER } from './definition.ts';

/** The kind whose objects define other kinds. */
export const DEFINITION_KIND = defineKind(
  'apiextensions.k8s.io/v1',
  'CustomResourceDefinition',
  'customresourcedefinitions',
  {
    namespaced: false,
    shortNames: ['crd', 'crds'],
    categories: ['api-extensions'],
    status: true,
    anyFinalizers: true,
    // A definition remains until its objects are deleted.
    deletionFinalizers: [CLEANUP_FINALIZER],
    prepareCreate(definition) {
      const spec = definition['spec'] as { versions?: { name: string; storage?: boolean }[] } | undefined;
      const stored = spec?.versions?.find((version) => version.storage);
      definition['status'] = {
        conditions: [],
        acceptedNames: { plural: '', kind: '' },
        storedVersions: stored ? [stored.name] : [],
      };
    },
    prepareUpdate(definition, before) {
      const spec = definition['spec'] as { versions?: { name: string; storage?: boolean }[] } | undefined;
      const stored = spec?.versions?.find((version) => version.storage)?.name;
      const status = before['status'] as { storedVersions?: string[] } | undefined;
      if (stored === undefined || status?.storedVersions?.includes(stored)) return;
      definition['status'] = { ...status, storedVersions: [...(status?.storedVersions ?? []), stored] };
    },
  },
);
