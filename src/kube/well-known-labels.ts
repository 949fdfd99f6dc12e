/**
 * The labels, annotations and taints of Kubernetes that several files name
 * (https://kubernetes.io/docs/reference/labels-annotations-taints/). What one file alone needs is there.
 */

/** Of an EndpointSlice: the name of its Service. */
export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
/** Of an EndpointSlice: the controller that writes it. */
export const MANAGED_BY_LABEL = 'endpointslice.kubernetes.io/managed-by';
/** Of Services and their endpoints: another proxy forwards them. */
export const PROXY_NAME_LABEL = 'service.kubernetes.io/service-proxy-name';
/** Of the endpoints of a headless Service. */
export const HEADLESS_LABEL = 'service.kubernetes.io/headless';
/** Of endpoints: when what they follow has changed last. */
export const LAST_CHANGE_ANNOTATION = 'endpoints.kubernetes.io/last-change-trigger-time';

export const ZONE_LABEL = 'topology.kubernetes.io/zone';
export const HOSTNAME_LABEL = 'kubernetes.io/hostname';
export const OS_LABEL = 'kubernetes.io/os';

export const NOT_READY_TAINT = 'node.kubernetes.io/not-ready';
export const UNREACHABLE_TAINT = 'node.kubernetes.io/unreachable';
export const UNSCHEDULABLE_TAINT = 'node.kubernetes.io/unschedulable';

export const DEFAULT_CLASS_ANNOTATION = 'storageclass.kubernetes.io/is-default-class';
/** Of an IngressClass: the class of Ingresses that name none. */
export const DEFAULT_INGRESS_CLASS_ANNOTATION = 'ingressclass.kubernetes.io/is-default-class';
/** The storage class of a claim, before it had a field. */
export const STORAGE_CLASS_ANNOTATION = 'volume.beta.kubernetes.io/storage-class';
export const VOLUME_PROTECTION_FINALIZER = 'kubernetes.io/pv-protection';

/** Of a pod that a kubelet runs from a file. */
export const MIRROR_ANNOTATION = 'kubernetes.io/config.mirror';
/** The object that `kubectl apply` sent last. */
export const LAST_APPLIED_ANNOTATION = 'kubectl.kubernetes.io/last-applied-configuration';
