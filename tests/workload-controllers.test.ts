import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { RESOURCES } from '../src/kube/types.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

const namespace = 'default';
const template = (app: string) => ({
  metadata: { labels: { app } },
  spec: { containers: [{ name: 'main', image: 'host:1', command: ['sleep'] }] },
});

describe('controllers of workloads and volumes', { timeout: 120_000 }, () => {
  let plane: ControlPlane;
  /** Existing folders of volumes. */
  const folders = new Set<string>();
  before(async () => {
    plane = await startControlPlane({
      localVolumes: {
        pathOf: (volume) => `/volumes/${volume}`,
        create: async (path) => void folders.add(path),
        remove: async (path) => void folders.delete(path),
      },
    });
    for (const name of ['a', 'b']) await plane.addNode(name);
  });
  after(() => plane?.close());

  test('a StatefulSet gets its volumes, each on its pod’s node, and they are deleted with it', async () => {
    const { client } = plane;
    await client.create(RESOURCES.statefulSets, {
      metadata: { name: 'db', namespace },
      spec: {
        serviceName: 'db',
        replicas: 2,
        selector: { matchLabels: { app: 'db' } },
        template: template('db'),
        persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Delete', whenScaled: 'Retain' },
        volumeClaimTemplates: [
          {
            metadata: { name: 'data' },
            spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
          },
        ],
      },
    });
    await plane.until(RESOURCES.statefulSets, 'two ready pods', ([set]) =>
      set?.status?.readyReplicas === 2 ? true : undefined,
    );
    const claims = (await client.list(RESOURCES.persistentVolumeClaims, { namespace })).items;
    assert.deepEqual(claims.map(({ metadata, status }) => `${metadata?.name} ${status?.phase}`).sort(), [
      'data-db-0 Bound',
      'data-db-1 Bound',
    ]);
    const pod = await client.get(RESOURCES.pods, 'db-0', namespace);
    const claim = claims.find(({ metadata }) => metadata?.name === 'data-db-0');
    const volume = await client.get(RESOURCES.persistentVolumes, claim?.spec?.volumeName ?? '');
    const [term] = volume.spec?.nodeAffinity?.required?.nodeSelectorTerms ?? [];
    assert.deepEqual(term?.matchExpressions?.[0]?.values, [pod.spec?.nodeName]);
    assert.equal(folders.size, 2);
    await client.delete(RESOURCES.statefulSets, 'db', { namespace });
    await plane.until(RESOURCES.persistentVolumes, 'no volume', (volumes) =>
      volumes.length === 0 ? true : undefined,
    );
    assert.equal(folders.size, 0);
  });

  test('a claim is kept while a pod uses it', async () => {
    const { client } = plane;
    await client.create(RESOURCES.persistentVolumeClaims, {
      metadata: { name: 'kept', namespace },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Mi' } } },
    });
    const volumes = [{ name: 'v', persistentVolumeClaim: { claimName: 'kept' } }];
    await client.create(RESOURCES.pods, {
      metadata: { name: 'user', namespace },
      spec: { containers: [{ name: 'main', image: 'host:1' }], volumes },
    });
    await plane.until(RESOURCES.pods, 'user runs', (pods) =>
      pods.find(({ metadata, status }) => metadata?.name === 'user' && status?.phase === 'Running'),
    );
    await client.delete(RESOURCES.persistentVolumeClaims, 'kept', { namespace });
    const going = await client.get(RESOURCES.persistentVolumeClaims, 'kept', namespace);
    assert.notEqual(going.metadata?.deletionTimestamp, undefined);
    await client.delete(RESOURCES.pods, 'user', { namespace });
    await plane.until(RESOURCES.persistentVolumeClaims, 'claim gone', (claims) =>
      claims.some(({ metadata }) => metadata?.name === 'kept') ? undefined : true,
    );
  });

  test('a ReplicationController keeps its pods, and a quota counts them', async () => {
    const { client } = plane;
    await client.create(RESOURCES.resourceQuotas, {
      metadata: { name: 'quota', namespace },
      spec: { hard: { pods: '10', 'count/replicationcontrollers': '5' } },
    });
    await client.create(RESOURCES.replicationControllers, {
      metadata: { name: 'old', namespace },
      spec: { replicas: 2, selector: { app: 'old' }, template: template('old') },
    });
    await plane.until(RESOURCES.replicationControllers, 'two ready pods', ([one]) =>
      one?.status?.readyReplicas === 2 ? true : undefined,
    );
    await plane.until(RESOURCES.resourceQuotas, 'counted', ([quota]) =>
      quota?.status?.used?.['pods'] === '2' && quota.status.used['count/replicationcontrollers'] === '1'
        ? true
        : undefined,
    );
    await client.delete(RESOURCES.replicationControllers, 'old', {
      namespace,
      propagationPolicy: 'Background',
    });
    await plane.until(RESOURCES.resourceQuotas, 'counted down', ([quota]) =>
      quota?.status?.used?.['pods'] === '0' ? true : undefined,
    );
  });

  test('a quota counts the devices that ResourceClaims request', async () => {
    const { client } = plane;
    const devices = 'gold.deviceclass.resource.k8s.io/devices';
    await client.create(RESOURCES.resourceQuotas, {
      metadata: { name: 'devices', namespace },
      spec: { hard: { [devices]: '5' } },
    });
    const exactly = { deviceClassName: 'gold', allocationMode: 'ExactCount', count: 3 };
    const claims = {
      group: 'resource.k8s.io',
      version: 'v1',
      plural: 'resourceclaims',
      kind: 'ResourceClaim',
      namespaced: true,
    };
    const claim = {
      metadata: { name: 'three', namespace },
      spec: { devices: { requests: [{ name: 'r', exactly }] } },
    };
    await client.create(claims, claim);
    await plane.until(RESOURCES.resourceQuotas, 'counted', (quotas) =>
      quotas.find(({ metadata }) => metadata?.name === 'devices')?.status?.used?.[devices] === '3'
        ? true
        : undefined,
    );
  });

  test('ServiceCIDRs are ready', async () => {
    await plane.until(RESOURCES.serviceCidrs, 'ready', ([cidr]) =>
      cidr?.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True')
        ? true
        : undefined,
    );
  });
});
