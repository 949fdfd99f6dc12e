import { findKubeconfigContext } from '../cluster/kubeconfig-contexts.ts';
import { type Client, createClient, hasReason } from '../kube/client.ts';
import { kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES, type Service } from '../kube/types.ts';
import { addressAt, parseCidr } from '../lib/address.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { DNS_SERVICE } from './dns-objects.ts';

/** Where clusters have their DNS Service, and the label of it that all of them use (kubeadm, kind, k3s, managed ones). */
const NAMESPACE = 'kube-system';
const LABEL = 'k8s-app=kube-dns';
/** The place of the DNS Service in the range of cluster IPs (kubeadm's GetDNSIP). */
const DNS_INDEX = 10;
const PATIENCE_MS = 5000;

/** The cluster IP of DNS, and what it was read from. */
export interface DnsAddress {
  readonly address: string;
  /** "Service kube-system/kube-dns" */
  readonly source: string;
  /** A Service of another name server, which selects pods, has the name of ours. */
  readonly isServed?: boolean;
}

/** Returns the address of the DNS Service of a cluster; without one, the tenth address of its Services; null: neither is known. */
export async function findDnsAddress(
  client: Pick<Client, 'get' | 'list'>,
  signal?: AbortSignal,
): Promise<DnsAddress | null> {
  const options = signal ? { signal } : {};
  const services = await client.list(RESOURCES.services, {
    namespace: NAMESPACE,
    labelSelector: LABEL,
    limit: 10,
    ...options,
  });
  for (const service of services.items) {
    const address = addressOf(service);
    const { name } = service.metadata ?? {};
    const isServed = name === DNS_SERVICE && Object.keys(service.spec?.selector ?? {}).length > 0;
    if (address !== null) return { address, source: `Service ${NAMESPACE}/${name}`, isServed };
  }
  try {
    const range = await client.get(RESOURCES.serviceCidrs, 'kubernetes', undefined, options);
    const [text = ''] = range.spec?.cidrs ?? [];
    const cidr = parseCidr(text);
    if (!cidr) return null;
    const source = `the tenth address of ${text}`;
    return { address: addressAt(cidr, DNS_INDEX), source, isServed: false };
  } catch (error) {
    // Kubernetes before 1.33, and users without the permission to read it.
    if (hasReason(error, 'NotFound') || hasReason(error, 'Forbidden')) return null;
    throw error;
  }
}

function addressOf({ spec }: Service): string | null {
  const address = spec?.clusterIP ?? '';
  return address === '' || address === 'None' ? null : address;
}

/** Returns the DNS address of the cluster of kubectl's current context. Throws FairleadError if it is not known. */
export async function currentDnsAddress(environment: NodeJS.ProcessEnv): Promise<DnsAddress> {
  const fail = (why: string, cause?: unknown) =>
    new FairleadError(`the cluster IP of DNS is not known: ${why}`, {
      op: 'fairlead manifests',
      code: 'no-cluster',
      hint: 'use --dns-address ADDRESS: the cluster IP of the Service kube-dns, or the tenth address of the range of Services',
      ...(cause === undefined ? {} : { cause }),
    });
  const place = findKubeconfigContext({ file: null, context: null }, environment);
  if (place === null) throw fail('no kubeconfig has a current context');
  const source = kubeconfigSource(
    place.file,
    { server: null, now: Date.now, onProblem: () => {} },
    place.context,
  );
  const transport = httpTransport(source);
  try {
    const client = createClient(transport, 'fairlead-manifests');
    const found = await findDnsAddress(client, AbortSignal.timeout(PATIENCE_MS));
    if (found === null)
      throw fail('the cluster has neither a Service kube-dns nor a ServiceCIDR that you may read');
    return found;
  } catch (error) {
    if (error instanceof FairleadError && error.op === 'fairlead manifests') throw error;
    throw fail(messageOf(error), error);
  } finally {
    transport.close();
  }
}
