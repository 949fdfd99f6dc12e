import packageJson from '../../package.json' with { type: 'json' };

export const version: string = packageJson.version;

/** The version that the API server and the nodes report: that of the Kubernetes API they implement. */
export const KUBERNETES_VERSION = `v1.36.0+fairlead.${packageJson.version}`;
