import type { KeyedCertificate } from '../apiserver/pki.ts';

/** A kubeconfig with one cluster and one user, everything inside. */
export function kubeconfigText(name: string, server: string, ca: string, identity: KeyedCertificate): string {
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  const label = `fairlead-${name}`;
  return `apiVersion: v1
kind: Config
clusters:
- name: ${label}
  cluster:
    server: ${server}
    certificate-authority-data: ${base64(ca)}
users:
- name: ${label}
  user:
    client-certificate-data: ${base64(identity.cert)}
    client-key-data: ${base64(identity.key)}
contexts:
- name: ${label}
  context:
    cluster: ${label}
    user: ${label}
current-context: ${label}
`;
}
