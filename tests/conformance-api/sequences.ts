/** One request of a sequence; `force` and `subresource` are query parameters. */
export interface Step {
  readonly verb: 'apply' | 'update' | 'patch' | 'json';
  readonly manager: string;
  readonly body: unknown;
  readonly force?: boolean;
  readonly status?: boolean;
}

/**
 * Writes of several managers to one object; after each write both servers must store the same object and
 * owners.
 */
export interface Sequence {
  readonly name: string;
  /** The collection's path and the object's type. */
  readonly kind: 'ConfigMap' | 'Deployment' | 'Pod' | 'Service';
  readonly steps: readonly Step[];
}

const container = (name: string, more: object = {}) => ({ name, image: `${name}:1`, ...more });
const template = (spec: object) => ({ metadata: { labels: { app: 'a' } }, spec });
const deployment = (spec: object, pod: object = { containers: [container('a')] }) => ({
  spec: { selector: { matchLabels: { app: 'a' } }, template: template(pod), ...spec },
});

const apply = (manager: string, body: unknown, more: Partial<Step> = {}): Step => ({
  verb: 'apply',
  manager,
  body,
  ...more,
});
const update = (manager: string, body: unknown): Step => ({ verb: 'update', manager, body });
const patch = (manager: string, body: unknown): Step => ({ verb: 'patch', manager, body });

const cm = (data: object | null | undefined, metadata: object = {}) => ({
  ...(data === undefined ? {} : { data }),
  metadata,
});

export const SEQUENCES: readonly Sequence[] = [
  { name: 'create by apply', kind: 'ConfigMap', steps: [apply('m', cm({ a: '1' }))] },
  {
    name: 'an empty map',
    kind: 'ConfigMap',
    steps: [apply('m', cm({})), apply('m', cm({ a: '1' })), apply('m', cm({}))],
  },
  { name: 'no map', kind: 'ConfigMap', steps: [apply('m', cm({ a: '1' })), apply('m', cm(undefined))] },
  {
    name: 'two managers, two keys',
    kind: 'ConfigMap',
    steps: [apply('m', cm({ a: '1' })), apply('n', cm({ b: '1' })), apply('m', cm({}))],
  },
  {
    name: 'a conflict',
    kind: 'ConfigMap',
    steps: [
      apply('m', cm({ a: '1' })),
      apply('n', cm({ a: '2' })),
      apply('n', cm({ a: '2' }), { force: true }),
    ],
  },
  {
    name: 'the same value twice',
    kind: 'ConfigMap',
    steps: [apply('m', cm({ a: '1' })), apply('n', cm({ a: '1' })), apply('m', cm({}))],
  },
  {
    name: 'labels and annotations',
    kind: 'ConfigMap',
    steps: [
      apply('m', cm({ a: '1' }, { labels: { x: 'y' } })),
      apply('m', cm({ a: '1' }, { labels: {} })),
      apply('m', cm({ a: '1' }, { annotations: { x: 'y' } })),
    ],
  },
  {
    name: 'finalizers are a set',
    kind: 'ConfigMap',
    steps: [
      apply('m', cm({}, { finalizers: ['e.com/a', 'e.com/b'] })),
      apply('n', cm({}, { finalizers: ['e.com/c', 'e.com/a'] })),
      apply('m', cm({}, { finalizers: ['e.com/b'] })),
    ],
  },
  {
    name: 'an update after an apply',
    kind: 'ConfigMap',
    steps: [
      apply('m', cm({ a: '1' })),
      update('u', cm({ a: '2', b: '3' })),
      apply('m', cm({ a: '1' })),
      apply('m', cm({ a: '1' }), { force: true }),
    ],
  },
  {
    name: 'an update that removes',
    kind: 'ConfigMap',
    steps: [apply('m', cm({ a: '1', b: '2' })), update('u', cm({ a: '1' }))],
  },
  {
    name: 'update, then apply',
    kind: 'ConfigMap',
    steps: [
      update('u', cm({ a: '1' }, { labels: { x: 'y' } })),
      apply('m', cm({ a: '1' })),
      apply('m', cm({ b: '1' })),
    ],
  },
  {
    name: 'a patch',
    kind: 'ConfigMap',
    steps: [
      update('u', cm({ a: '1' })),
      patch('p', { metadata: { labels: { l: 'v' } } }),
      patch('p', { data: { a: '2' } }),
    ],
  },
  {
    name: 'an annotation added to none',
    kind: 'ConfigMap',
    steps: [update('u', cm({ a: '1' })), patch('p', { metadata: { annotations: { l: 'v' } } })],
  },
  {
    name: 'managedFields cleared',
    kind: 'ConfigMap',
    steps: [
      apply('m', cm({ a: '1' })),
      patch('p', { metadata: { managedFields: [{}] } }),
      apply('m', cm({ a: '1' })),
    ],
  },
  {
    name: 'managedFields emptied by a list',
    kind: 'ConfigMap',
    steps: [
      apply('m', cm({ a: '1' })),
      { verb: 'json', manager: 'p', body: [{ op: 'replace', path: '/metadata/managedFields', value: [{}] }] },
    ],
  },
  {
    name: 'null for a value',
    kind: 'ConfigMap',
    steps: [apply('m', cm({ a: '1', b: null })), apply('m', cm(null))],
  },
  {
    name: 'last-applied of kubectl',
    kind: 'ConfigMap',
    steps: [
      update(
        'kubectl-client-side-apply',
        cm(
          { a: '1' },
          {
            annotations: {
              'kubectl.kubernetes.io/last-applied-configuration':
                '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},"name":"x","namespace":"default"},"data":{"a":"1"}}\n',
            },
          },
        ),
      ),
      apply('kubectl', cm({ a: '2' })),
      apply('kubectl', cm({ b: '2' })),
    ],
  },
  { name: 'a Deployment by update', kind: 'Deployment', steps: [update('u', deployment({}))] },
  { name: 'a Deployment by apply', kind: 'Deployment', steps: [apply('m', deployment({ replicas: 2 }))] },
  {
    name: 'containers in another order',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({}, { containers: [container('a'), container('b')] })),
      apply('m', deployment({}, { containers: [container('b'), container('a')] })),
    ],
  },
  {
    name: 'an init container between',
    kind: 'Deployment',
    steps: [
      apply(
        'm',
        deployment({}, { containers: [container('a')], initContainers: [container('i1'), container('i3')] }),
      ),
      apply(
        'm',
        deployment(
          {},
          {
            containers: [container('a')],
            initContainers: [container('i1'), container('i2'), container('i3')],
          },
        ),
      ),
      apply(
        'm',
        deployment(
          {},
          {
            containers: [container('a')],
            initContainers: [container('i0'), container('i3'), container('i1')],
          },
        ),
      ),
    ],
  },
  {
    name: "another manager's container",
    kind: 'Deployment',
    steps: [
      apply('m', deployment({})),
      apply('n', { spec: { template: { spec: { containers: [container('side')] } } } }),
      apply('m', deployment({}, { containers: [container('z'), container('a')] })),
    ],
  },
  {
    name: 'containers between those of another',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({}, { containers: [container('a'), container('b'), container('c')] })),
      apply('n', {
        spec: { template: { spec: { containers: [container('x'), container('b'), container('y')] } } },
      }),
    ],
  },
  {
    name: 'a container that goes',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({}, { containers: [container('a'), container('b')] })),
      apply('m', deployment({}, { containers: [container('b')] })),
    ],
  },
  {
    name: 'ports by key',
    kind: 'Deployment',
    steps: [
      apply(
        'm',
        deployment(
          {},
          {
            containers: [
              container('a', { ports: [{ containerPort: 80 }, { containerPort: 81, protocol: 'UDP' }] }),
            ],
          },
        ),
      ),
      apply(
        'm',
        deployment({}, { containers: [container('a', { ports: [{ containerPort: 81, protocol: 'UDP' }] })] }),
      ),
      apply('m', deployment({}, { containers: [container('a', { ports: [] })] })),
    ],
  },
  {
    name: 'env entries',
    kind: 'Deployment',
    steps: [
      apply(
        'm',
        deployment(
          {},
          {
            containers: [
              container('a', {
                env: [
                  { name: 'A', value: '1' },
                  { name: 'B', value: '2' },
                ],
              }),
            ],
          },
        ),
      ),
      apply('n', {
        spec: { template: { spec: { containers: [{ name: 'a', env: [{ name: 'C', value: '3' }] }] } } },
      }),
      apply('m', deployment({}, { containers: [container('a', { env: [{ name: 'B', value: '2' }] })] })),
    ],
  },
  {
    name: 'an atomic list',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({}, { containers: [container('a', { args: ['a', 'b'] })] })),
      apply('n', { spec: { template: { spec: { containers: [{ name: 'a', args: ['a', 'b'] }] } } } }),
      apply('m', deployment({}, { containers: [container('a', { args: [] })] })),
    ],
  },
  {
    name: 'an atomic map',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({}, { containers: [container('a')], nodeSelector: { a: 'b' } })),
      apply('n', { spec: { template: { spec: { nodeSelector: { a: 'b', c: 'd' } } } } }),
      apply('m', deployment({}, { containers: [container('a')], nodeSelector: {} })),
    ],
  },
  {
    name: 'limits',
    kind: 'Deployment',
    steps: [
      apply(
        'm',
        deployment(
          {},
          { containers: [container('a', { resources: { limits: { cpu: '1', memory: '1Gi' } } })] },
        ),
      ),
      apply('m', deployment({}, { containers: [container('a', { resources: { limits: { cpu: '1' } } })] })),
      apply('m', deployment({}, { containers: [container('a', { resources: {} })] })),
    ],
  },
  {
    name: 'replicas given up',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({ replicas: 3 })),
      patch('scaler', { spec: { replicas: 5 } }),
      apply('m', deployment({ replicas: 3 })),
      apply('m', deployment({})),
    ],
  },
  {
    name: 'a defaulted field left out',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({ replicas: 3, revisionHistoryLimit: 5 })),
      apply('m', deployment({ replicas: 3 })),
    ],
  },
  {
    name: 'a volume changes its source',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({}, { containers: [container('a')], volumes: [{ name: 'v', emptyDir: {} }] })),
      apply(
        'm',
        deployment({}, { containers: [container('a')], volumes: [{ name: 'v', configMap: { name: 'c' } }] }),
      ),
    ],
  },
  {
    name: 'tolerations are atomic',
    kind: 'Deployment',
    steps: [
      apply(
        'm',
        deployment({}, { containers: [container('a')], tolerations: [{ key: 'k', operator: 'Exists' }] }),
      ),
      apply(
        'n',
        { spec: { template: { spec: { tolerations: [{ key: 'l', operator: 'Exists' }] } } } },
        { force: true },
      ),
    ],
  },
  {
    name: 'a status',
    kind: 'Deployment',
    steps: [
      apply('m', deployment({})),
      apply('c', { status: { replicas: 1 } }, { status: true }),
      apply('m', { ...deployment({}), status: { replicas: 4 } }),
    ],
  },
  {
    name: 'a Service by apply',
    kind: 'Service',
    steps: [
      apply('m', {
        spec: { clusterIP: '10.96.0.77', ports: [{ port: 80 }, { port: 80, protocol: 'UDP', name: 'u' }] },
      }),
      apply('m', {
        spec: {
          clusterIP: '10.96.0.77',
          ports: [
            { port: 80, name: 'a' },
            { port: 81, name: 'b' },
          ],
        },
      }),
      apply('m', { spec: { clusterIP: '10.96.0.77', ports: [{ port: 81, name: 'b' }] } }),
    ],
  },
  {
    name: 'a Service by update',
    kind: 'Service',
    steps: [
      update('u', { spec: { clusterIP: '10.96.0.78', selector: { a: 'b' }, ports: [{ port: 80 }] } }),
      patch('p', { spec: { selector: { c: 'd' } } }),
    ],
  },
  {
    name: 'a Pod',
    kind: 'Pod',
    steps: [
      apply('m', {
        spec: {
          automountServiceAccountToken: false,
          containers: [container('a', { ports: [{ containerPort: 80 }] })],
        },
      }),
      apply('m', {
        metadata: { labels: { a: 'b' } },
        spec: { automountServiceAccountToken: false, containers: [container('a', { image: 'a:2' })] },
      }),
    ],
  },
  {
    name: 'a Pod by update',
    kind: 'Pod',
    steps: [
      update('u', {
        spec: {
          automountServiceAccountToken: false,
          containers: [
            container('a', {
              env: [{ name: 'A', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
              ports: [{ containerPort: 80 }],
            }),
          ],
          volumes: [{ name: 'v', emptyDir: {} }],
        },
      }),
      patch('p', { metadata: { labels: { a: 'b' } } }),
    ],
  },
];
