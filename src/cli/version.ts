import packageJson from '../../package.json' with { type: 'json' };

export const version: string = packageJson.version;

/** What the API server and the nodes say they are: the Kubernetes version whose API this is. */
export const KUBERNETES_VERSION = `v1.36.0+fairlead.${packageJson.version}`;
