import { NOT_READY_TAINT } from '../../kube/well-known-labels.ts';
import { isObject, listAt } from '../object.ts';
import type { AdmissionPlugin } from './plugin.ts';

/** Taints new nodes until the node controller has seen them ready (upstream's TaintNodesByCondition). */
export const taintNewNodes: AdmissionPlugin = {
  name: 'TaintNodesByCondition',
  handles: ({ operation, resource, subresource }) =>
    operation === 'CREATE' && resource.group === '' && resource.resource === 'nodes' && subresource === '',
  mutate({ object }) {
    if (!object) return;
    const spec = isObject(object['spec']) ? object['spec'] : {};
    const taints = listAt(spec, 'taints');
    if (taints.some(({ key, effect }) => key === NOT_READY_TAINT && effect === 'NoSchedule')) return;
    object['spec'] = { ...spec, taints: [...taints, { key: NOT_READY_TAINT, effect: 'NoSchedule' }] };
  },
};
