import { stringify } from 'yaml';
import { commandPath, OPERATOR, operationsOf, VIEWER } from '../agent/command-rights.ts';

type KubeObject = Record<string, unknown>;

const RBAC = 'rbac.authorization.k8s.io';
/** The ServiceAccount of the agents. */
const AGENTS = 'fairlead';
const OBJECTS = 'fairlead-objects';

/**
 * Returns the objects that let users send commands to the agents in a namespace: ServiceAccounts whose tokens the agents
 * accept, who may do what with these, and Roles for the users who may have such tokens. They change no agent.
 */
export function commandAccessObjects(namespace: string): KubeObject[] {
  return [
    clusterRoleBinding(`${AGENTS}-reviews`, 'system:auth-delegator', AGENTS, namespace),
    ...accountObjects(VIEWER, 'viewer', namespace),
    ...accountObjects(OPERATOR, 'operator', namespace),
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: meta(OBJECTS),
      rules: [
        rule('', ['nodes', 'pods', 'services'], ['list', 'watch']),
        rule('discovery.k8s.io', ['endpointslices'], ['list', 'watch']),
        rule('coordination.k8s.io', ['leases'], ['list']),
      ],
    },
  ];
}

/** Renders the objects as YAML documents. */
export const commandAccessYaml = (namespace: string): string =>
  commandAccessObjects(namespace)
    .map((object) => stringify(object, { lineWidth: 0 }))
    .join('---\n');

function accountObjects(name: string, who: 'viewer' | 'operator', namespace: string): KubeObject[] {
  const looking = operationsOf('viewer').map(commandPath);
  const changing = operationsOf('operator')
    .map(commandPath)
    .filter((path) => !looking.includes(path));
  return [
    {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: meta(name, namespace),
      automountServiceAccountToken: false,
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: meta(name),
      rules: [
        { nonResourceURLs: looking, verbs: ['get'] },
        ...(who === 'viewer' ? [] : [{ nonResourceURLs: changing, verbs: ['update'] }]),
      ],
    },
    clusterRoleBinding(name, name, name, namespace),
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'Role',
      metadata: meta(name, namespace),
      rules: [
        { ...rule('', ['serviceaccounts/token'], ['create']), resourceNames: [name] },
        rule('', ['pods/proxy'], ['get', 'create']),
      ],
    },
  ];
}

function meta(name: string, namespace?: string): KubeObject {
  return {
    name,
    ...(namespace === undefined ? {} : { namespace }),
    labels: { 'app.kubernetes.io/name': 'fairlead-commands' },
  };
}

const rule = (group: string, resources: readonly string[], verbs: readonly string[]) => ({
  apiGroups: [group],
  resources,
  verbs,
});

function clusterRoleBinding(name: string, role: string, account: string, namespace: string): KubeObject {
  return {
    apiVersion: `${RBAC}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: meta(name),
    roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: role },
    subjects: [{ kind: 'ServiceAccount', name: account, namespace }],
  };
}
