import { fieldMatcher } from '../field-selectors.ts';
import { defineKind } from '../kind.ts';
import { type ApiObject, at, listAt, textAt } from '../object.ts';
import { parseLabelSelector } from '../selectors.ts';
import type { ApiServices, Resource } from '../services.ts';
import { notFound } from '../status-error.ts';
import type { StoredObject } from '../store.ts';
import { columns, type Printer } from '../tables/printer.ts';
import { listResponse, selection } from '../verbs/list.ts';
import { negotiateObject, objectResponse } from '../verbs/object-response.ts';

const printer: Printer = {
  columns: columns('Name; Status; Message; Error'),
  cells(object) {
    const healthy = listAt(object, 'conditions').find(({ type }) => type === 'Healthy');
    const status = { True: 'Healthy', False: 'Unhealthy' }[textAt(healthy, 'status')] ?? 'Unknown';
    return [object.metadata.name, status, textAt(healthy, 'message'), at(healthy, 'error') ?? ''];
  },
};

const kind = defineKind('v1', 'ComponentStatus', 'componentstatuses', {
  namespaced: false,
  shortNames: ['cs'],
  deprecation: 'v1 ComponentStatus is deprecated in v1.19+',
  printer,
});

/** The components that upstream lists; here the first two run in the process of the server, as long as it serves. */
function statuses({ store }: ApiServices): StoredObject[] {
  const problems: readonly (readonly [name: string, problem: string | null])[] = [
    ['controller-manager', null],
    ['scheduler', null],
    ['etcd-0', store.problem()],
  ];
  return problems.map(([name, problem]) => {
    const condition = {
      type: 'Healthy',
      status: problem === null ? 'True' : 'False',
      message: problem ?? 'ok',
    };
    const object: ApiObject = {
      kind: 'ComponentStatus',
      apiVersion: 'v1',
      metadata: { name },
      conditions: [condition],
    };
    return { collection: kind.collection, key: `/${name}`, version: 0, object, json: JSON.stringify(object) };
  });
}

/** The health of the control plane's components (`kubectl get componentstatuses`), deprecated upstream since 1.19. */
export const COMPONENT_STATUSES: Resource = {
  kind,
  stored: false,
  subresources: new Map(),
  handlers: {
    list(context, services) {
      const form = negotiateObject(services, context);
      const { labelSelector = '', fieldSelector = '' } = selection(context);
      const [hasLabels, hasFields] = [parseLabelSelector(labelSelector), fieldMatcher(kind, fieldSelector)];
      const items = statuses(services).filter(
        ({ object }) => hasLabels(object.metadata.labels ?? {}) && hasFields(object),
      );
      return listResponse(services, context, form, items, {});
    },
    get(context, services) {
      const form = negotiateObject(services, context);
      const found = statuses(services).find(({ object }) => object.metadata.name === context.name);
      if (!found) throw notFound({ ...kind, plural: 'componentstatus' }, context.name);
      return objectResponse(services, context, form, 200, found);
    },
  },
};
