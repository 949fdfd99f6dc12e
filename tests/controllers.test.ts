import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Deployment, type KubeObject, RESOURCES } from '../src/kube/types.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

const labels = { app: 'web' };

function deployment(name: string, fields: Partial<NonNullable<Deployment['spec']>> = {}): Deployment {
  return {
    metadata: { name, namespace: 'default' },
    spec: {
      replicas: 3,
      selector: { matchLabels: { app: name } },
      template: {
        metadata: { labels: { app: name } },
        spec: { containers: [{ name: 'main', image: 'host:1', command: ['sleep'] }] },
      },
      ...fields,
    },
  };
}

describe('a cluster with its controllers', { timeout: 120_000 }, () => {
  let plane: ControlPlane;
  before(async () => {
    plane = await startControlPlane();
    for (const name of ['a', 'b', 'c']) {
      await plane.addNode(name, { labels: { 'topology.kubernetes.io/zone': `zone-${name}` } });
    }
  });
  after(() => plane?.close());

  test('nodes get distinct podCIDRs', async () => {
    const cidrs = await plane.until(RESOURCES.nodes, 'podCIDRs', (nodes) => {
      const found = nodes.flatMap(({ spec }) => spec?.podCIDR ?? []);
      return found.length === 3 ? found : undefined;
    });
    assert.equal(new Set(cidrs).size, 3);
  });

  test('namespaces get a service account and the CA certificate', async () => {
    await plane.until(RESOURCES.serviceAccounts, 'default account', (accounts) =>
      accounts.find(({ metadata }) => metadata?.namespace === 'default' && metadata.name === 'default'),
    );
    await plane.until(RESOURCES.configMaps, 'kube-root-ca.crt', (maps) =>
      maps.find(
        ({ metadata }) => metadata?.namespace === 'kube-system' && metadata.name === 'kube-root-ca.crt',
      ),
    );
  });

  test('a Deployment becomes three spread, available pods behind a Service', async () => {
    await plane.client.create(RESOURCES.services, {
      metadata: { name: 'web', namespace: 'default' },
      spec: { selector: labels, ports: [{ name: 'http', port: 80, targetPort: 8080 }] },
    });
    await plane.client.create(RESOURCES.deployments, deployment('web'));
    const slice = await plane.until(RESOURCES.endpointSlices, 'three ready endpoints', (slices) =>
      slices.find(
        ({ metadata, endpoints }) =>
          metadata?.labels?.['kubernetes.io/service-name'] === 'web' &&
          endpoints?.length === 3 &&
          endpoints.every(({ conditions }) => conditions?.ready),
      ),
    );
    assert.deepEqual([...new Set(slice.endpoints.map(({ nodeName }) => nodeName))].sort(), ['a', 'b', 'c']);
    assert.deepEqual([...new Set(slice.endpoints.map(({ zone }) => zone))].sort(), [
      'zone-a',
      'zone-b',
      'zone-c',
    ]);
    assert.deepEqual(slice.ports, [{ name: 'http', port: 8080, protocol: 'TCP' }]);
    const status = await plane.until(RESOURCES.deployments, 'available', ([found]) =>
      found?.status?.availableReplicas === 3 ? found.status : undefined,
    );
    assert.equal(
      status?.conditions?.find(({ type }) => type === 'Progressing')?.reason,
      'NewReplicaSetAvailable',
    );
    const { items } = await plane.client.list(RESOURCES.pods, { namespace: 'default' });
    assert.equal(items.length, 3);
    await plane.until(RESOURCES.endpoints, 'legacy Endpoints', (found) =>
      found.find(
        ({ metadata, subsets }) => metadata?.name === 'web' && subsets?.[0]?.addresses?.length === 3,
      ),
    );
  });

  test('a rolling update replaces the pods, keeps the old ReplicaSet, and never exceeds maxUnavailable', async () => {
    let fewest = 3;
    let most = 0;
    const watching = plane.until(RESOURCES.pods, 'new pods only', (pods) => {
      const mine = pods.filter(({ metadata }) => metadata?.labels?.['app'] === 'web');
      const serving = mine.filter(
        ({ metadata, status }) =>
          !metadata?.deletionTimestamp &&
          status?.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True'),
      );
      fewest = Math.min(fewest, serving.length);
      most = Math.max(most, mine.filter(({ metadata }) => !metadata?.deletionTimestamp).length);
      const fresh = serving.filter(({ spec }) => spec?.containers[0]?.image === 'host:2');
      return fresh.length === 3 && mine.length === 3 ? true : undefined;
    });
    const patch = { spec: { template: { spec: { containers: [{ name: 'main', image: 'host:2' }] } } } };
    await plane.client.patch(RESOURCES.deployments, 'web', 'strategic', patch, { namespace: 'default' });
    await watching;
    assert.ok(fewest >= 3, `only ${fewest} pods were ready at one time`);
    assert.ok(most <= 4, `${most} pods at one time`);
    const done = await plane.until(RESOURCES.deployments, 'rolled out', ([found]) =>
      found?.status?.updatedReplicas === 3 &&
      found.status.replicas === 3 &&
      found.status.availableReplicas === 3
        ? found
        : undefined,
    );
    assert.equal(done.metadata?.annotations?.['deployment.kubernetes.io/revision'], '2');
    const sets = (await plane.client.list(RESOURCES.replicaSets)).items;
    assert.deepEqual(sets.map(({ spec }) => spec?.replicas).sort(), [0, 3]);
  });

  test('an undo makes the old ReplicaSet the new revision', async () => {
    const patch = { spec: { template: { spec: { containers: [{ name: 'main', image: 'host:1' }] } } } };
    await plane.client.patch(RESOURCES.deployments, 'web', 'strategic', patch, { namespace: 'default' });
    await plane.until(RESOURCES.deployments, 'revision 3 complete', ([found]) =>
      found?.metadata?.annotations?.['deployment.kubernetes.io/revision'] === '3' &&
      found.status?.observedGeneration === found.metadata.generation &&
      found.status?.conditions?.find(({ type }) => type === 'Progressing')?.reason ===
        'NewReplicaSetAvailable' &&
      found.status.updatedReplicas === 3 &&
      found.status.replicas === 3
        ? true
        : undefined,
    );
    const sets = (await plane.client.list(RESOURCES.replicaSets)).items;
    assert.equal(sets.length, 2);
  });

  test('scaling takes effect', async () => {
    await plane.client.scale(RESOURCES.deployments, 'web', 'default', 5);
    await plane.until(RESOURCES.pods, 'five pods', (pods) =>
      pods.filter(({ status }) => status?.phase === 'Running').length === 5 ? true : undefined,
    );
    await plane.client.scale(RESOURCES.deployments, 'web', 'default', 1);
    await plane.until(RESOURCES.pods, 'one pod', (pods) => (pods.length === 1 ? true : undefined));
  });

  test('a DaemonSet runs on each node, including nodes added later', async () => {
    const template = deployment('agent').spec?.template;
    assert.ok(template);
    await plane.client.create(RESOURCES.daemonSets, {
      metadata: { name: 'agent', namespace: 'kube-system' },
      spec: { selector: { matchLabels: { app: 'agent' } }, template },
    });
    await plane.until(RESOURCES.daemonSets, 'three', ([set]) =>
      set?.status?.numberReady === 3 ? true : undefined,
    );
    await plane.addNode('d');
    await plane.until(RESOURCES.daemonSets, 'four', ([set]) =>
      set?.status?.numberReady === 4 && set.status.desiredNumberScheduled === 4 ? true : undefined,
    );
    const patch = { spec: { template: { spec: { containers: [{ name: 'main', image: 'host:2' }] } } } };
    await plane.client.patch(RESOURCES.daemonSets, 'agent', 'strategic', patch, { namespace: 'kube-system' });
    await plane.until(RESOURCES.daemonSets, 'updated', ([set]) =>
      set?.status?.observedGeneration === 2 &&
      set.status.updatedNumberScheduled === 4 &&
      set.status.numberReady === 4
        ? true
        : undefined,
    );
  });

  test('a StatefulSet creates its pods in order with stable names, and updates them', async () => {
    const template = deployment('db').spec?.template;
    assert.ok(template);
    await plane.client.create(RESOURCES.statefulSets, {
      metadata: { name: 'db', namespace: 'default' },
      spec: { serviceName: 'db', replicas: 3, selector: { matchLabels: { app: 'db' } }, template },
    });
    await plane.until(RESOURCES.statefulSets, 'ready', ([set]) =>
      set?.status?.readyReplicas === 3 ? true : undefined,
    );
    const pods = (await plane.client.list(RESOURCES.pods, { labelSelector: 'app=db' })).items;
    assert.deepEqual(pods.map(({ metadata }) => metadata?.name).sort(), ['db-0', 'db-1', 'db-2']);
    assert.equal(pods[0]?.spec?.subdomain, 'db');
    const patch = { spec: { template: { spec: { containers: [{ name: 'main', image: 'host:2' }] } } } };
    await plane.client.patch(RESOURCES.statefulSets, 'db', 'strategic', patch, { namespace: 'default' });
    await plane.until(RESOURCES.statefulSets, 'updated', ([set]) =>
      set?.status?.currentRevision === set?.status?.updateRevision &&
      set?.status?.observedGeneration === 2 &&
      set.status.updatedReplicas === 3 &&
      set.status.readyReplicas === 3
        ? true
        : undefined,
    );
    await plane.client.scale(RESOURCES.statefulSets, 'db', 'default', 1);
    await plane.until(RESOURCES.pods, 'db-0 alone', (found) => {
      const names = found
        .filter(({ metadata }) => metadata?.labels?.['app'] === 'db')
        .map(({ metadata }) => metadata?.name);
      return names.length === 1 && names[0] === 'db-0' ? true : undefined;
    });
  });

  test('a Job completes', async () => {
    await plane.client.create(RESOURCES.jobs, {
      metadata: { name: 'once', namespace: 'default' },
      spec: {
        completions: 3,
        parallelism: 2,
        template: {
          spec: {
            restartPolicy: 'Never',
            containers: [{ name: 'main', image: 'host:succeeds', command: ['true'] }],
          },
        },
      },
    });
    const status = await plane.until(RESOURCES.jobs, 'complete', ([job]) =>
      job?.status?.conditions?.some(({ type }) => type === 'Complete') ? job.status : undefined,
    );
    assert.equal(status.succeeded, 3);
    assert.equal(
      (await plane.client.list(RESOURCES.pods, { labelSelector: 'job-name=once' })).items.length,
      3,
    );
  });

  test('manually created Endpoints are mirrored, and deleted with their Service', async () => {
    const metadata = { name: 'outside', namespace: 'default' };
    await plane.client.create(RESOURCES.services, { metadata, spec: { ports: [{ port: 80 }] } });
    await plane.client.create(RESOURCES.endpoints, {
      metadata,
      subsets: [{ addresses: [{ ip: '192.0.2.1' }], ports: [{ port: 80 }] }],
    });
    const isMirror = (slice: { metadata?: { labels?: Record<string, string> } }) =>
      slice.metadata?.labels?.['endpointslice.kubernetes.io/managed-by'] ===
      'endpointslicemirroring-controller.k8s.io';
    await plane.until(RESOURCES.endpointSlices, 'mirrored', (slices) => slices.find(isMirror));
    await plane.client.delete(RESOURCES.services, 'outside', { namespace: 'default' });
    await plane.until(RESOURCES.endpointSlices, 'gone', (slices) =>
      slices.some(isMirror) ? undefined : true,
    );
  });

  test('a pod that fits on no node reports why, and is scheduled when there is room', async () => {
    const pod = (name: string, cpu: string) => ({
      metadata: { name, namespace: 'default' },
      spec: {
        nodeSelector: { big: 'yes' },
        containers: [{ name: 'main', image: 'host:1', command: ['sleep'], resources: { requests: { cpu } } }],
      },
    });
    await plane.client.create(RESOURCES.pods, pod('large', '3'));
    const condition = await plane.until(RESOURCES.pods, 'unschedulable', (pods) =>
      pods
        .find(({ metadata }) => metadata?.name === 'large')
        ?.status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False'),
    );
    assert.equal(condition.observedGeneration, 1);
    assert.equal(
      condition.message,
      "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
    );
    await plane.until(RESOURCES.events, 'event', (events) =>
      events.find(({ reason }) => reason === 'FailedScheduling'),
    );
    await plane.client.patch(RESOURCES.nodes, 'b', 'merge', { metadata: { labels: { big: 'yes' } } });
    await plane.until(RESOURCES.pods, 'placed', (pods) =>
      pods.find(({ metadata, spec }) => metadata?.name === 'large' && spec?.nodeName === 'b'),
    );
    // A pod of a higher priority class preempts the other, which reports the reason.
    const critical = pod('critical', '3');
    await plane.client.create(RESOURCES.pods, {
      ...critical,
      spec: { ...critical.spec, priorityClassName: 'system-cluster-critical' },
    });
    await plane.until(RESOURCES.pods, 'preempted', (pods) =>
      pods.find(({ metadata, spec }) => metadata?.name === 'critical' && spec?.nodeName === 'b'),
    );
    await plane.until(RESOURCES.events, 'Preempted', (events) =>
      events.find(({ reason, involvedObject }) => reason === 'Preempted' && involvedObject?.name === 'large'),
    );
  });

  test('deleting a Deployment deletes everything below it', async () => {
    await plane.client.delete(RESOURCES.deployments, 'web', {
      namespace: 'default',
      propagationPolicy: 'Foreground',
    });
    await plane.until(RESOURCES.deployments, 'deployment gone', (all) =>
      all.length === 0 ? true : undefined,
    );
    assert.deepEqual((await plane.client.list(RESOURCES.pods, { labelSelector: 'app=web' })).items, []);
    assert.deepEqual((await plane.client.list(RESOURCES.replicaSets)).items, []);
  });

  test("an object whose owner does not exist is deleted when the owner's kind is installed", async () => {
    const names = { plural: 'owners', kind: 'Owner' };
    const schema = { openAPIV3Schema: { type: 'object' } };
    await plane.client.create(RESOURCES.configMaps, {
      metadata: {
        name: 'owned',
        namespace: 'default',
        ownerReferences: [{ apiVersion: 'example.com/v1', kind: 'Owner', name: 'gone', uid: 'none' }],
      },
    });
    const isThere = (maps: readonly KubeObject[]) => maps.some(({ metadata }) => metadata?.name === 'owned');
    await plane.until(RESOURCES.configMaps, 'the dependent', (maps) => isThere(maps) || undefined);
    await plane.client.request('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: 'owners.example.com' },
      spec: {
        ...{ group: 'example.com', scope: 'Namespaced', names },
        versions: [{ name: 'v1', served: true, storage: true, schema }],
      },
    });
    await plane.until(RESOURCES.configMaps, 'no dependent', (maps) => !isThere(maps) || undefined);
  });

  test('an orphaned ReplicaSet stays and is adopted again', async () => {
    await plane.client.create(RESOURCES.deployments, deployment('kept', { replicas: 2 }));
    await plane.until(RESOURCES.deployments, 'up', ([found]) =>
      found?.status?.readyReplicas === 2 ? true : undefined,
    );
    await plane.client.delete(RESOURCES.deployments, 'kept', {
      namespace: 'default',
      propagationPolicy: 'Orphan',
    });
    await plane.until(RESOURCES.replicaSets, 'orphaned', ([set]) =>
      set && (set.metadata?.ownerReferences ?? []).length === 0 ? true : undefined,
    );
    await plane.until(RESOURCES.deployments, 'gone', (all) => (all.length === 0 ? true : undefined));
    await plane.client.create(RESOURCES.deployments, deployment('kept', { replicas: 2 }));
    const set = await plane.until(RESOURCES.replicaSets, 'adopted', ([found]) =>
      found?.metadata?.ownerReferences?.length === 1 ? found : undefined,
    );
    assert.equal(set.spec?.replicas, 2);
    assert.equal((await plane.client.list(RESOURCES.replicaSets)).items.length, 1);
  });

  test('deleting a namespace deletes its objects', async () => {
    await plane.client.create(RESOURCES.namespaces, { metadata: { name: 'brief' } });
    const object = deployment('brief');
    await plane.client.create(RESOURCES.deployments, {
      ...object,
      metadata: { name: 'brief', namespace: 'brief' },
    });
    await plane.until(RESOURCES.deployments, 'up', (all) =>
      all.find(({ metadata, status }) => metadata?.name === 'brief' && status?.readyReplicas === 3),
    );
    await plane.client.delete(RESOURCES.namespaces, 'brief');
    await plane.until(RESOURCES.namespaces, 'gone', (all) =>
      all.some(({ metadata }) => metadata?.name === 'brief') ? undefined : true,
    );
    assert.deepEqual((await plane.client.list(RESOURCES.pods, { namespace: 'brief' })).items, []);
  });

  test('pods of a deleted node are deleted', async () => {
    await plane.client.delete(RESOURCES.nodes, 'd');
    await plane.until(RESOURCES.pods, 'gone from d', (pods) =>
      pods.some(({ spec }) => spec?.nodeName === 'd') ? undefined : true,
    );
    await plane.until(RESOURCES.daemonSets, 'three again', ([set]) =>
      set?.status?.desiredNumberScheduled === 3 ? true : undefined,
    );
  });

  test('no warning or error was logged', () => {
    assert.deepEqual(plane.complaints, []);
  });
});
