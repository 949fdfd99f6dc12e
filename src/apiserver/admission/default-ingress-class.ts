import { isObject } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionPlugin } from './plugin.ts';

const IS_DEFAULT = 'ingressclass.kubernetes.io/is-default-class';
const LEGACY = 'kubernetes.io/ingress.class';

/**
 * Sets the default class on an Ingress without a class; if several classes are marked as default, the newest
 * (DefaultIngressClass).
 */
export function createDefaultIngressClass(view: ObjectView): AdmissionPlugin {
  return {
    name: 'DefaultIngressClass',
    handles: ({ operation, resource, subresource }) =>
      operation === 'CREATE' &&
      resource.group === 'networking.k8s.io' &&
      resource.resource === 'ingresses' &&
      subresource === '',
    mutate({ object }) {
      if (!object) return;
      const spec = isObject(object['spec']) ? object['spec'] : {};
      if (spec['ingressClassName'] !== undefined || object.metadata.annotations?.[LEGACY] !== undefined)
        return;
      const classes = view
        .list('ingressclasses.networking.k8s.io')
        .filter(({ metadata }) => metadata.annotations?.[IS_DEFAULT] === 'true');
      const newest = classes.reduce<(typeof classes)[number] | undefined>(
        (best, one) =>
          best === undefined ||
          (one.metadata.creationTimestamp ?? '') > (best.metadata.creationTimestamp ?? '')
            ? one
            : best,
        undefined,
      );
      if (newest) object['spec'] = { ...spec, ingressClassName: newest.metadata.name };
    },
  };
}
