import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from './client.ts';
import { missingRule } from './missing-rule.ts';
import { RESOURCES, type Resource } from './types.ts';

const USER = 'forbidden: User "system:serviceaccount:kube-system:fairlead" cannot list it';

const CASES: { name: string; resource: Resource; namespace?: string; message?: string; wanted: string }[] = [
  {
    name: 'a resource of the built-in role',
    resource: RESOURCES.endpointSlices,
    wanted:
      'not allowed to list endpointslices.discovery.k8s.io: bind user system:serviceaccount:kube-system:fairlead to the ClusterRole system:node-proxier, or to one with the rule {apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"]}',
  },
  {
    name: 'a resource of no built-in role',
    resource: RESOURCES.pods,
    wanted:
      'not allowed to list pods: bind user system:serviceaccount:kube-system:fairlead to a ClusterRole with the rule {apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}',
  },
  {
    name: 'a resource of one namespace',
    resource: RESOURCES.leases,
    namespace: 'kube-system',
    wanted:
      'not allowed to list leases.coordination.k8s.io in namespace kube-system: bind user system:serviceaccount:kube-system:fairlead to a Role with the rule {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["list", "watch"]}',
  },
  {
    name: 'a server that does not name the user',
    resource: RESOURCES.pods,
    message: 'no',
    wanted:
      'not allowed to list pods: bind this client to a ClusterRole with the rule {apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}',
  },
];

for (const { name, resource, namespace, message = USER, wanted } of CASES) {
  test(`missing rule: ${name}`, () => {
    const error = new ApiError(403, { reason: 'Forbidden', message }, null, 'list');
    assert.equal(missingRule(error, 'list', resource, namespace).message, wanted);
  });
}
