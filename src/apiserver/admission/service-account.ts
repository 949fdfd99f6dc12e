import { MIRROR_ANNOTATION } from '../../kube/well-known-labels.ts';
import type { Clock } from '../../lib/clock.ts';
import { podReferences } from '../authorization/node-graph.ts';
import { type ApiObject, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

const TOKEN_PATH = '/var/run/secrets/kubernetes.io/serviceaccount';
const TOKEN_SECONDS = 3607;
const ENFORCE_SECRETS = 'kubernetes.io/enforce-mountable-secrets';
/**
 * The controller creates a namespace's default account; a pod that is created earlier waits for at most this number of
 * steps.
 */
const WAIT_STEPS = 20;
const WAIT_STEP_MS = 100;

/**
 * Sets the service account of new pods, with its pull secrets and its token as files (upstream's ServiceAccount
 * plugin).
 */
export function createServiceAccountPlugin(
  view: ObjectView,
  clock: Clock,
  suffix: () => string,
  options: { readonly mountTokens: boolean },
): AdmissionPlugin {
  return {
    name: 'ServiceAccount',
    handles: ({ operation, resource, subresource }) =>
      operation === 'CREATE' && resource.group === '' && resource.resource === 'pods' && subresource === '',
    async mutate(attributes) {
      const { object: pod, namespace } = attributes;
      if (!pod || !isObject(pod['spec'])) return;
      const { spec } = pod;
      if (pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined)
        return checkMirror(attributes, pod, spec);
      const name = textAt(spec, 'serviceAccountName') || textAt(spec, 'serviceAccount') || 'default';
      spec['serviceAccountName'] = name;
      spec['serviceAccount'] = name;
      // Without controllers there are no accounts, and without agents nothing reads a token.
      if (!options.mountTokens) return;
      const account = await findAccount(view, clock, namespace, name);
      if (!account) {
        throw admissionForbidden(
          attributes,
          `error looking up service account ${namespace}/${name}: serviceaccount ${JSON.stringify(name)} not found`,
        );
      }
      if (account.metadata.annotations?.[ENFORCE_SECRETS] === 'true') checkSecrets(attributes, pod, account);
      const automount =
        spec['automountServiceAccountToken'] ?? account['automountServiceAccountToken'] ?? true;
      if (automount !== false) mountToken(spec, suffix);
      const pullSecrets = listAt(account, 'imagePullSecrets');
      if (listAt(spec, 'imagePullSecrets').length === 0 && pullSecrets.length > 0) {
        spec['imagePullSecrets'] = pullSecrets.map(({ name }) => ({ name: String(name) }));
      }
    },
  };
}

/**
 * Mirror pods represent pods that a node runs from its own files: they must not use objects that only the API server
 * grants.
 */
function checkMirror(attributes: AdmissionAttributes, pod: ApiObject, spec: JsonObject): void {
  const refuse = (what: string) => admissionForbidden(attributes, `a mirror pod may not reference ${what}`);
  if (textAt(spec, 'serviceAccountName') !== '') throw refuse('service accounts');
  if (
    podReferences({ ...pod, metadata: { ...pod.metadata, annotations: {} } }).some((one) =>
      one.startsWith('secrets '),
    )
  )
    throw refuse('secrets');
  const projected = listAt(spec, 'volumes').flatMap((volume) => listAt(volume, 'projected', 'sources'));
  if (projected.some((source) => source['serviceAccountToken'] !== undefined))
    throw refuse('a ServiceAccountToken volume projection');
}

async function findAccount(
  view: ObjectView,
  clock: Clock,
  namespace: string,
  name: string,
): Promise<ApiObject | undefined> {
  const steps = name === 'default' ? WAIT_STEPS : 0;
  for (let step = 0; ; step++) {
    const account = view.get('serviceaccounts', `${namespace}/${name}`);
    if (account || step >= steps) return account;
    await new Promise<void>((resolve) => {
      clock.after(WAIT_STEP_MS, resolve);
    });
  }
}

function checkSecrets(attributes: AdmissionAttributes, pod: ApiObject, account: ApiObject): void {
  const { namespace = '', name = '' } = account.metadata;
  const allowed = new Set(
    ['secrets', 'imagePullSecrets'].flatMap((list) =>
      listAt(account, list).map((one) => `secrets ${namespace}/${String(one['name'])}`),
    ),
  );
  for (const reference of podReferences(pod)) {
    if (!reference.startsWith('secrets ') || allowed.has(reference)) continue;
    const secret = reference.slice(`secrets ${namespace}/`.length);
    throw admissionForbidden(
      attributes,
      `a secret ${JSON.stringify(secret)} is not referenced by service account ${name}`,
    );
  }
}

function mountToken(spec: JsonObject, suffix: () => string): void {
  const containers = [...listAt(spec, 'initContainers'), ...listAt(spec, 'containers')];
  const without = containers.filter(
    (container) => !listAt(container, 'volumeMounts').some((mount) => mount['mountPath'] === TOKEN_PATH),
  );
  if (without.length === 0) return;
  const name = `kube-api-access-${suffix()}`;
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
