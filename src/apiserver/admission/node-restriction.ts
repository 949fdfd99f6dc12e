import { HOSTNAME_LABEL, MIRROR_ANNOTATION, OS_LABEL, ZONE_LABEL } from '../../kube/well-known-labels.ts';
import type { Authorizer } from '../authorization/authorizer.ts';
import { nodeOf } from '../authorization/node-authorizer.ts';
import { podReferences } from '../authorization/node-graph.ts';
import { type ApiObject, at, equal, isObject, listAt, textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

const LEASES = 'kube-node-lease';

/**
 * Restricts the writes of a node's agent to its own Node (without taints and reserved labels), the pods bound to it,
 * its lease and tokens of its pods (upstream's plugin/pkg/admission/noderestriction).
 */
export function createNodeRestriction(view: ObjectView, authorizer: Authorizer): AdmissionPlugin {
  const check = async (attributes: AdmissionAttributes) => {
    const node = nodeOf(attributes.user) ?? '';
    const { group, resource } = attributes.resource;
    const refuse = (why: string) => admissionForbidden(attributes, why);
    switch (group === '' ? resource : `${resource}.${group}`) {
      case 'pods':
        return checkPod(view, node, attributes, refuse);
      case 'nodes':
        return checkNode(node, attributes, refuse);
      case 'serviceaccounts':
        return checkToken(view, authorizer, node, attributes, refuse);
      case 'persistentvolumeclaims':
        if (attributes.subresource !== 'status' || attributes.operation !== 'UPDATE')
          throw refuse(`may only update PVC status`);
        return;
      case 'leases.coordination.k8s.io':
        return checkLease(node, attributes, refuse);
      case 'csinodes.storage.k8s.io':
        if (nameOf(attributes) !== node)
          throw refuse(`can only access CSINode with the same name as the requesting node`);
    }
  };
  return {
    name: 'NodeRestriction',
    handles: ({ user, operation }) => operation !== 'CONNECT' && nodeOf(user) !== null,
    mutate: check,
    // Webhooks may have changed the object.
    validate: check,
  };
}

type Refuse = (why: string) => Error;

const nameOf = ({ name, object }: AdmissionAttributes) => name || (object?.metadata.name ?? '');

function checkPod(view: ObjectView, node: string, attributes: AdmissionAttributes, refuse: Refuse): void {
  const { operation, subresource, object, oldObject, namespace, name } = attributes;
  const quoted = JSON.stringify(node);
  if (subresource === 'status') {
    if (operation !== 'UPDATE') throw refuse(`unexpected operation ${JSON.stringify(operation)}`);
    if (textAt(oldObject, 'spec', 'nodeName') !== node)
      throw refuse(`node ${quoted} can only update pod status for pods with spec.nodeName set to itself`);
    if (!equal(object?.metadata.labels ?? {}, oldObject?.metadata.labels ?? {}))
      throw refuse(`node ${quoted} cannot update labels through pod status`);
    return;
  }
  if (subresource === 'eviction') {
    const pod = view.get('pods', `${namespace}/${name || (object?.metadata.name ?? '')}`);
    if (textAt(pod, 'spec', 'nodeName') !== node)
      throw refuse(`node ${quoted} can only evict pods with spec.nodeName set to itself`);
    return;
  }
  if (subresource !== '') throw refuse(`unexpected pod subresource ${JSON.stringify(subresource)}`);
  switch (operation) {
    case 'CREATE':
      checkMirrorPod(node, object, refuse);
      return;
    case 'DELETE':
      if (textAt(oldObject, 'spec', 'nodeName') !== node)
        throw refuse(`node ${quoted} can only delete pods with spec.nodeName set to itself`);
      return;
    default:
      throw refuse(`unexpected operation ${JSON.stringify(operation)}`);
  }
}

function checkMirrorPod(node: string, pod: ApiObject | null, refuse: Refuse): void {
  const quoted = JSON.stringify(node);
  if (pod?.metadata.annotations?.[MIRROR_ANNOTATION] === undefined)
    throw refuse(
      `pod does not have ${JSON.stringify(MIRROR_ANNOTATION)} annotation, node ${quoted} can only create mirror pods`,
    );
  if (textAt(pod, 'spec', 'nodeName') !== node)
    throw refuse(`node ${quoted} can only create pods with spec.nodeName set to itself`);
  const plain = { ...pod, metadata: { ...pod.metadata, annotations: {} } };
  const [reference] = podReferences(plain);
  if (reference !== undefined)
    throw refuse(`node ${quoted} can not create pods that reference ${reference.split(' ')[0]}`);
}

function checkNode(node: string, attributes: AdmissionAttributes, refuse: Refuse): void {
  const { operation, object, oldObject } = attributes;
  const quoted = JSON.stringify(node);
  const name = nameOf(attributes);
  if (name !== node) throw refuse(`node ${quoted} is not allowed to modify node ${JSON.stringify(name)}`);
  if (operation === 'DELETE') throw refuse(`node ${quoted} is not allowed to delete itself`);
  if (!object) return;
  const labels = object.metadata.labels ?? {};
  const before = oldObject?.metadata.labels ?? {};
  const changed = [...new Set([...Object.keys(labels), ...Object.keys(before)])].filter(
    (key) => labels[key] !== before[key],
  );
  const refused = changed.filter((key) => !mayLabel(key)).sort();
  if (refused.length > 0)
    throw refuse(
      `node ${quoted} is not allowed to ${operation === 'CREATE' ? 'set' : 'modify'} the following labels: ${refused.join(', ')}`,
    );
  if (isObject(at(object, 'spec', 'configSource')) && operation === 'CREATE')
    throw refuse(`node ${quoted} is not allowed to create pods with a non-nil configSource`);
  if (operation === 'UPDATE') {
    // A kubelet sets its taints when it registers and never changes them.
    if (!equal(listAt(object, 'spec', 'taints'), listAt(oldObject, 'spec', 'taints')))
      throw refuse(`node ${quoted} is not allowed to modify taints`);
    if (!equal(object.metadata.ownerReferences ?? [], oldObject?.metadata.ownerReferences ?? []))
      throw refuse(`node ${quoted} is not allowed to modify ownerReferences`);
  }
}

const OWN_LABELS = new Set([
  HOSTNAME_LABEL,
  'kubernetes.io/arch',
  OS_LABEL,
  'beta.kubernetes.io/arch',
  'beta.kubernetes.io/os',
  'beta.kubernetes.io/instance-type',
  'node.kubernetes.io/instance-type',
  'failure-domain.beta.kubernetes.io/region',
  'failure-domain.beta.kubernetes.io/zone',
  'topology.kubernetes.io/region',
  ZONE_LABEL,
]);
const OWN_DOMAINS = ['kubelet.kubernetes.io', 'node.kubernetes.io'];
const RESERVED = /(^|\.)(kubernetes|k8s)\.io$/;

/** Labels in Kubernetes' own domains are reserved for the cluster, except those that describe the node. */
function mayLabel(key: string): boolean {
  const slash = key.indexOf('/');
  if (slash < 0) return true;
  const domain = key.slice(0, slash);
  if (!RESERVED.test(domain)) return true;
  if (domain === 'node-restriction.kubernetes.io' || domain.endsWith('.node-restriction.kubernetes.io'))
    return false;
  if (OWN_LABELS.has(key)) return true;
  if (OWN_DOMAINS.some((own) => domain === own || domain.endsWith(`.${own}`))) return true;
  return false;
}

async function checkToken(
  view: ObjectView,
  authorizer: Authorizer,
  node: string,
  attributes: AdmissionAttributes,
  refuse: Refuse,
): Promise<void> {
  const { subresource, object, namespace } = attributes;
  if (subresource !== 'token') return;
  const bound = at(object, 'spec', 'boundObjectRef');
  if (textAt(bound, 'kind') !== 'Pod' || textAt(bound, 'name') === '')
    throw refuse('node requested token not bound to a pod');
  if (textAt(bound, 'uid') === '') throw refuse('node requested token with a pod binding without a uid');
  const pod = view.get('pods', `${namespace}/${textAt(bound, 'name')}`);
  if (!pod || pod.metadata.uid !== textAt(bound, 'uid') || textAt(pod, 'spec', 'nodeName') !== node)
    throw refuse('node requested token bound to a pod scheduled on a different node');
  const given = at(object, 'spec', 'audiences');
  const audiences = Array.isArray(given) ? given.map(String) : [];
  if (audiences.length > 1) throw refuse('node may only request 0 or 1 audiences');
  const [audience = ''] = audiences;
  if (audience === '' || audiencesOf(view, pod).has(audience)) return;
  const { verdict } = await authorizer.authorize({
    user: attributes.user,
    verb: 'request-serviceaccounts-token-audience',
    isResourceRequest: true,
    apiGroup: '',
    apiVersion: '',
    resource: audience,
    subresource: '',
    namespace,
    name: attributes.name,
    path: '',
  });
  if (verdict !== 'allow')
    throw refuse(
      `audience ${JSON.stringify(audience)} not found in pod spec volume, ${attributes.user.name} is not authorized to request tokens for this audience`,
    );
}

/** Returns the audiences of the tokens that a pod's volumes need: projected ones, and those of their CSI drivers. */
function audiencesOf(view: ObjectView, pod: ApiObject): ReadonlySet<string> {
  const audiences = new Set<string>();
  const ofDriver = (driver: string) => {
    const requests = listAt(view.get('csidrivers.storage.k8s.io', `/${driver}`), 'spec', 'tokenRequests');
    for (const request of requests) audiences.add(textAt(request, 'audience'));
  };
  const ofClaim = (claimName: string) => {
    const claim = view.get('persistentvolumeclaims', `${pod.metadata.namespace}/${claimName}`);
    const volume = view.get('persistentvolumes', `/${textAt(claim, 'spec', 'volumeName')}`);
    ofDriver(textAt(volume, 'spec', 'csi', 'driver'));
  };
  for (const volume of listAt(pod, 'spec', 'volumes')) {
    for (const source of listAt(volume, 'projected', 'sources')) {
      if (isObject(source['serviceAccountToken']))
        audiences.add(textAt(source['serviceAccountToken'], 'audience'));
    }
    ofDriver(textAt(volume, 'csi', 'driver'));
    if (isObject(volume['persistentVolumeClaim']))
      ofClaim(textAt(volume, 'persistentVolumeClaim', 'claimName'));
    else if (isObject(volume['ephemeral'])) ofClaim(`${pod.metadata.name}-${String(volume['name'])}`);
  }
  return audiences;
}

function checkLease(node: string, attributes: AdmissionAttributes, refuse: Refuse): void {
  const name = attributes.object?.metadata.name ?? attributes.name;
  if (attributes.namespace !== LEASES)
    throw refuse(`can only access leases in the ${JSON.stringify(LEASES)} system namespace`);
  if (name !== node) throw refuse('can only access node lease with the same name as the requesting node');
}
