import type { StrategyContext } from './kind.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from './object.ts';
import { StatusError } from './status-error.ts';

const TOKEN_PATH = '/var/run/secrets/kubernetes.io/serviceaccount';
const TOKEN_SECONDS = 3607;
const TOLERATED_SECONDS = 300;
const PRIORITY_CLASSES = 'priorityclasses.scheduling.k8s.io';
const PREEMPT = 'PreemptLowerPriority';

/**
 * What upstream's admission gives every new pod: a service account and its token as files (ServiceAccount plugin),
 * five minutes on a node that has gone away (DefaultTolerationSeconds), and the priority of its class (Priority).
 */
export function admitPod(pod: ApiObject, context: StrategyContext): void {
  const { spec } = pod;
  if (!isObject(spec)) return;
  if (!spec['serviceAccountName']) spec['serviceAccountName'] = spec['serviceAccount'] || 'default';
  spec['serviceAccount'] = spec['serviceAccountName'];
  tolerateOutage(spec);
  setPriority(pod, spec, context);
  if (!context.mountTokens) return;
  const account = context.get(
    'serviceaccounts',
    `${pod.metadata.namespace}/${String(spec['serviceAccountName'])}`,
  );
  const automount = spec['automountServiceAccountToken'] ?? account?.['automountServiceAccountToken'] ?? true;
  if (automount !== false) mountToken(spec, context);
}

/** By its class, or by the one that is for all, or 0. Throws where there is no such class, or the pod says another. */
function setPriority(pod: ApiObject, spec: JsonObject, context: StrategyContext): void {
  const refuse = (message: string) => {
    const name = pod.metadata.name ?? '';
    return new StatusError(403, 'Forbidden', `pods ${JSON.stringify(name)} is forbidden: ${message}`, {
      name,
      kind: 'pods',
    });
  };
  const wanted = spec['priorityClassName'];
  const found = wanted
    ? context.get(PRIORITY_CLASSES, `/${String(wanted)}`)
    : context.list(PRIORITY_CLASSES).find((one) => one['globalDefault'] === true);
  if (wanted && !found) throw refuse(`no PriorityClass with name ${String(wanted)} was found`);
  if (found) spec['priorityClassName'] = found.metadata.name;
  const settings: JsonObject = {
    priority: Number(found?.['value'] ?? 0),
    preemptionPolicy: String(found?.['preemptionPolicy'] ?? PREEMPT),
  };
  for (const [field, value] of Object.entries(settings)) {
    if (spec[field] !== undefined && spec[field] !== value) {
      throw refuse(
        `spec.${field} is ${JSON.stringify(spec[field])}, but ${JSON.stringify(value)} by its PriorityClass; leave it out`,
      );
    }
    spec[field] = value;
  }
}

/** An update that does not name what admission has set leaves it, as upstream's does. */
export function keepPriority(pod: ApiObject, before: ApiObject): void {
  const [spec, old] = [pod['spec'], before['spec']];
  if (!isObject(spec) || !isObject(old)) return;
  for (const field of ['priority', 'preemptionPolicy', 'priorityClassName']) {
    if (spec[field] === undefined && old[field] !== undefined) spec[field] = old[field];
  }
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
