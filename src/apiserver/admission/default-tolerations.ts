import { NOT_READY_TAINT, UNREACHABLE_TAINT } from '../../kube/well-known-labels.ts';
import { isObject, listAt } from '../object.ts';
import type { AdmissionPlugin } from './plugin.ts';

const SECONDS = 300;
const KEYS = [NOT_READY_TAINT, UNREACHABLE_TAINT];

/**
 * Adds tolerations that let pods stay for five minutes on a node that is not ready or unreachable (upstream's
 * DefaultTolerationSeconds).
 */
export const defaultTolerationSeconds: AdmissionPlugin = {
  name: 'DefaultTolerationSeconds',
  handles: ({ operation, resource, subresource }) =>
    (operation === 'CREATE' || operation === 'UPDATE') &&
    resource.group === '' &&
    resource.resource === 'pods' &&
    subresource === '',
  mutate({ object }) {
    const spec = object?.['spec'];
    if (!isObject(spec)) return;
    const tolerations = listAt(spec, 'tolerations');
    const added = KEYS.filter(
      (key) =>
        !tolerations.some(
          ({ key: own, effect }) => (own === key || !own) && (effect === 'NoExecute' || !effect),
        ),
    ).map((key) => ({ key, operator: 'Exists', effect: 'NoExecute', tolerationSeconds: SECONDS }));
    if (added.length > 0) spec['tolerations'] = [...tolerations, ...added];
  },
};
