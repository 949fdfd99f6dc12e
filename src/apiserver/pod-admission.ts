import type { StrategyContext } from './kind.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from './object.ts';

const TOKEN_PATH = '/var/run/secrets/kubernetes.io/serviceaccount';
const TOKEN_SECONDS = 3607;
const TOLERATED_SECONDS = 300;

/**
 * What upstream's admission gives every new pod: a service account and its token as files (ServiceAccount plugin),
 * and five minutes on a node that has gone away (DefaultTolerationSeconds).
 */
export function admitPod(pod: ApiObject, context: StrategyContext): void {
  const { spec } = pod;
  if (!isObject(spec)) return;
  if (!spec['serviceAccountName']) spec['serviceAccountName'] = spec['serviceAccount'] || 'default';
  spec['serviceAccount'] = spec['serviceAccountName'];
  tolerateOutage(spec);
  if (!context.mountTokens) return;
  const account = context.get(
    'serviceaccounts',
    `${pod.metadata.namespace}/${String(spec['serviceAccountName'])}`,
  );
  const automount = spec['automountServiceAccountToken'] ?? account?.['automountServiceAccountToken'] ?? true;
  if (automount !== false) mountToken(spec, context);
}

function tolerateOutage(spec: JsonObject): void {
  const tolerations = listAt(spec, 'tolerations');
  const added = ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']
    .filter(
      (key) =>
        !tolerations.some(
          ({ key: own, effect }) => (own === key || !own) && (effect === 'NoExecute' || !effect),
        ),
    )
    .map((key) => ({ key, operator: 'Exists', effect: 'NoExecute', tolerationSeconds: TOLERATED_SECONDS }));
  if (added.length > 0) spec['tolerations'] = [...tolerations, ...added];
}

function mountToken(spec: JsonObject, context: StrategyContext): void {
  const containers = [...listAt(spec, 'initContainers'), ...listAt(spec, 'containers')];
  const without = containers.filter(
    (container) => !listAt(container, 'volumeMounts').some((mount) => mount['mountPath'] === TOKEN_PATH),
  );
  if (without.length === 0) return;
  const name = `kube-api-access-${context.suffix()}`;
  for (const container of without) {
    const mount = { name, mountPath: TOKEN_PATH, readOnly: true };
    container['volumeMounts'] = [...listAt(container, 'volumeMounts'), mount];
  }
  const sources = [
    { serviceAccountToken: { expirationSeconds: TOKEN_SECONDS, path: 'token' } },
    { configMap: { name: 'kube-root-ca.crt', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
    {
      downwardAPI: {
        items: [{ path: 'namespace', fieldRef: { apiVersion: 'v1', fieldPath: 'metadata.namespace' } }],
      },
    },
  ];
  spec['volumes'] = [...listAt(spec, 'volumes'), { name, projected: { sources, defaultMode: 0o644 } }];
}
