import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBesideControllers } from '../src/controllers/start-beside.ts';
import { LOCAL_PATH } from '../src/controllers/storage/provisioning.ts';
import { ingressAddresses } from '../src/kube/load-balancer.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

/** What kube-controller-manager leaves to others, beside controllers that leave it, too. */

const folders = new Set<string>();
const ending = new AbortController();
let plane: ControlPlane;

before(async () => {
  plane = await startControlPlane({});
  await plane.addNode('node-1');
  await startBesideControllers({
    client: plane.client,
    clock: systemClock,
    random: Math.random,
    logger: silentLogger,
    signal: ending.signal,
    options: {
      clusterCidrs: [],
      loadBalancerPools: [{ name: 'public', ranges: ['192.0.2.1-192.0.2.9'] }],
      localVolumes: {
        pathOf: (volume) => `/volumes/${volume}`,
        create: async (path) => void folders.add(path),
        remove: async (path) => void folders.delete(path),
      },
    },
  }).ready;
});
after(async () => {
  ending.abort();
  await plane?.close();
});

test('assigns addresses of load balancers', async () => {
  await plane.client.create(RESOURCES.services, {
    metadata: { name: 'web', namespace: 'default' },
    spec: { type: 'LoadBalancer', ports: [{ port: 80 }] },
  });
  const address = await plane.until(
    RESOURCES.services,
    'web has an address',
    (all) => ingressAddresses(all.find(({ metadata }) => metadata?.name === 'web') ?? {})[0],
  );
  assert.equal(address, '192.0.2.1');
});

test('creates a volume for a claim, and removes its folder with the claim', async () => {
  await plane.client.create(RESOURCES.storageClasses, {
    metadata: { name: 'immediate' },
    provisioner: LOCAL_PATH,
    volumeBindingMode: 'Immediate',
    reclaimPolicy: 'Delete',
  });
  await plane.client.create(RESOURCES.persistentVolumeClaims, {
    metadata: { name: 'data', namespace: 'default' },
    spec: {
      storageClassName: 'immediate',
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: '1Mi' } },
    },
  });
  const volume = await plane.until(RESOURCES.persistentVolumeClaims, 'data is bound', ([claim]) =>
    claim?.status?.phase === 'Bound' ? claim.spec?.volumeName : undefined,
  );
  assert.deepEqual([...folders], [`/volumes/${volume}`]);
  await plane.client.delete(RESOURCES.persistentVolumeClaims, 'data', { namespace: 'default' });
  await plane.until(RESOURCES.persistentVolumes, 'the volume is gone', (all) =>
    all.length === 0 ? true : undefined,
  );
  assert.deepEqual([...folders], []);
});
