import { writtenJson } from '../lib/written-json.ts';

export interface KubeconfigOptions {
  readonly name: string;
  /** "https://127.0.0.1:6443" */
  readonly server: string;
  /** PEM. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

const data = (pem: string) => Buffer.from(pem).toString('base64');

/** Renders the same as `kubeconfigText` as JSON, for an agent, which reads it faster. */
export function kubeconfigJson({ name, server, ca, cert, key }: KubeconfigOptions): string {
  return singleKubeconfig(
    name,
    { 'certificate-authority-data': data(ca), server },
    { 'client-certificate-data': data(cert), 'client-key-data': data(key) },
  );
}

/** Renders a kubeconfig with one cluster and one user, whose fields are those of the format, as JSON. */
export function singleKubeconfig(name: string, cluster: object, user: object): string {
  return writtenJson({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name, cluster }],
    users: [{ name, user }],
    contexts: [{ name, context: { cluster: name, user: name } }],
    'current-context': name,
    preferences: {},
  });
}

/**
 * Renders a kubeconfig with one cluster and one user; keys and certificates are embedded, so that the file can be
 * copied.
 */
export function kubeconfigText(options: KubeconfigOptions): string {
  const { name } = options;
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
