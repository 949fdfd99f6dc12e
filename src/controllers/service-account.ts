import type { ConfigMap, Namespace, ServiceAccount } from '../kube/types.ts';
import { type ControllerContext, controllerQueue } from './context.ts';

const ROOT_CA = 'kube-root-ca.crt';

export interface NamespacePlan {
  readonly createAccount: boolean;
  /** The ConfigMap to create or to replace. */
  readonly rootCa: ConfigMap | null;
}

/** Computes the objects that a namespace's pods need to access the API server, if missing. Pure. */
export function reconcileNamespaceDefaults(view: {
  readonly namespace: Namespace;
  readonly account: ServiceAccount | undefined;
  readonly rootCa: ConfigMap | undefined;
  readonly caBundle: string | undefined;
}): NamespacePlan {
  const { namespace, account, rootCa, caBundle } = view;
  if (namespace.metadata?.deletionTimestamp !== undefined) return { createAccount: false, rootCa: null };
  const right = rootCa?.data?.['ca.crt'] === caBundle && Object.keys(rootCa?.data ?? {}).length === 1;
  return {
    createAccount: account === undefined,
    rootCa:
      caBundle === undefined || right
        ? null
        : {
            ...rootCa,
            metadata: {
              ...rootCa?.metadata,
              name: ROOT_CA,
              namespace: namespace.metadata?.name ?? '',
              annotations: {
                'kubernetes.io/description':
                  'Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.',
              },
            },
            data: { 'ca.crt': caBundle },
          },
  };
}

/** Maintains the default ServiceAccount and the API server's authority in each namespace. */
export function startServiceAccounts(context: ControllerContext): void {
  const { namespaces, serviceAccounts, configMaps } = context.caches;
  const queue = controllerQueue(context, 'serviceaccount', async (name) => {
    const namespace = namespaces.get(undefined, name);
    if (!namespace) return;
    const rootCa = configMaps.get(name, ROOT_CA);
    const plan = reconcileNamespaceDefaults({
      namespace,
      account: serviceAccounts.get(name, 'default'),
      rootCa,
      caBundle: context.options.caBundle,
    });
    if (plan.createAccount) await serviceAccounts.create({ metadata: { name: 'default', namespace: name } });
    if (plan.rootCa) await (rootCa ? configMaps.update(plan.rootCa) : configMaps.create(plan.rootCa));
  });
  namespaces.informer.handle({
    onAdd: (namespace) => queue.add(namespace.metadata?.name ?? ''),
    onUpdate: (namespace) => queue.add(namespace.metadata?.name ?? ''),
  });
  serviceAccounts.informer.handle({
    onDelete(account) {
      if (account.metadata?.name === 'default') queue.add(account.metadata.namespace ?? '');
    },
  });
  const configMapChanged = (map: ConfigMap) => {
    if (map.metadata?.name === ROOT_CA) queue.add(map.metadata.namespace ?? '');
  };
  configMaps.informer.handle({ onUpdate: configMapChanged, onDelete: configMapChanged });
}
