import type { Pod } from '../kube/types.ts';

/** The labels of DNS pods in other clusters, by which policies allow DNS. */
const DNS_POD = { namespace: 'kube-system', name: 'kube-dns', labels: { 'k8s-app': 'kube-dns' } } as const;

/** Returns the node's DNS server as a pod, so that policies that allow DNS by the usual labels apply to it. */
export function dnsPod(addresses: readonly string[]): Pod {
  const { labels, ...names } = DNS_POD;
  return {
    metadata: { ...names, labels: { ...labels } },
    spec: {
      containers: [
        {
          name: 'dns',
          ports: [
            { name: 'dns', protocol: 'UDP', containerPort: 53 },
            { name: 'dns-tcp', protocol: 'TCP', containerPort: 53 },
          ],
        },
      ],
    },
    status: { podIPs: addresses.map((ip) => ({ ip })) },
  };
}
