/**
 * Renders a kubeconfig with one cluster and one user; keys and certificates are embedded, so that the file can be
 * copied.
 */
export function kubeconfigText(options: {
  readonly name: string;
  /** "https://127.0.0.1:6443" */
  readonly server: string;
  /** PEM. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}): string {
  const { name } = options;
  const data = (pem: string) => Buffer.from(pem).toString('base64');
  // JSON is YAML; the outer form equals the output of `kubectl config`.
  return `apiVersion: v1
kind: Config
clusters:
- name: ${JSON.stringify(name)}
  cluster:
    certificate-authority-data: ${data(options.ca)}
    server: ${JSON.stringify(options.server)}
users:
- name: ${JSON.stringify(name)}
  user:
    client-certificate-data: ${data(options.cert)}
    client-key-data: ${data(options.key)}
contexts:
- name: ${JSON.stringify(name)}
  context:
    cluster: ${JSON.stringify(name)}
    user: ${JSON.stringify(name)}
current-context: ${JSON.stringify(name)}
preferences: {}
`;
}
